! Calls functions of a Farcall server from Fortran 2018. Link with -lfarcall_fortran -lfarcall.
!
!     use farcall
!     type(farcall_server) :: server
!     type(farcall_function) :: dgesv
!     call farcall_connect(server, "farcall://host:3717")
!     dgesv = farcall_function_of(server, "lapack/dgesv")
!     if (farcall_call(dgesv, n, 1, a, n, pivots, b, n, info) /= FARCALL_OK) &
!       print *, farcall_error_message()
!     call farcall_disconnect(server)
!
! Pass up to 40 arguments in the order of the interface: variables, expressions and arrays of any
! rank. The call checks the type and the size of each against the interface. Trailing blanks are not
! part of a text. An array that is not contiguous, such as a row, is copied there and back; gfortran
! copies no components, such as points%x, and no substrings, and the call refuses them.
!
! The arrays of an asynchronous call must be contiguous variables with the attribute ASYNCHRONOUS.
! Do not use them until a wait has reported the end of the call, or farcall_cancel has returned.
! Pass no expression for an array, such as 2*a: its value is gone when the call has begun, and
! nothing tells that to the library.
module farcall
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  implicit none
  private

  ! The status of an operation; farcall.h says what the values mean.
  integer(c_int), parameter, public :: FARCALL_OK = 0, FARCALL_ARGUMENT = 1, &
    FARCALL_UNKNOWN_FUNCTION = 2, FARCALL_CONNECTION = 3, FARCALL_TIMEOUT = 4, &
    FARCALL_LIBRARY = 5, FARCALL_SERVER_FAILED = 6, FARCALL_INTERNAL = 7, FARCALL_RUNNING = 8, &
    FARCALL_CANCELLED = 9, FARCALL_UNKNOWN_SESSION = 10

  ! A server.
  type, bind(c), public :: farcall_server
    type(c_ptr) :: handle = c_null_ptr
  end type

  ! A function of a server. It is valid as long as the server.
  type, bind(c), public :: farcall_function
    type(c_ptr) :: handle = c_null_ptr
  end type

  ! An object at a server.
  type, bind(c), public :: farcall_object
    type(c_ptr) :: handle = c_null_ptr
  end type

  ! The handle of a stored array, which calls take as an array.
  type, bind(c), public :: farcall_handle
    type(c_ptr) :: handle = c_null_ptr
  end type

  ! A callback: farcall_callback(c_funloc(monitor)) for a procedure with bind(C). The library
  ! refuses a plain c_funptr, because compilers differ in how they pass it.
  type, bind(c), public :: farcall_callback
    type(c_funptr) :: address = c_null_funptr
  end type

  ! The times of a call in seconds.
  type, bind(c), public :: farcall_times
    real(c_double) :: send = 0, exec = 0, recv = 0, other = 0, total = 0
  end type

  public :: farcall_connect, farcall_disconnect, farcall_function_of
  public :: farcall_object_new, farcall_object_method, farcall_object_free
  public :: farcall_call, farcall_call_async, farcall_put, farcall_get, farcall_drop
  public :: farcall_probe, farcall_wait, farcall_wait_or, farcall_wait_and, farcall_wait_any
  public :: farcall_wait_all, farcall_next_failed, farcall_cancel, farcall_cancel_all
  public :: farcall_session_times, farcall_times_of, farcall_allocate, farcall_free
  public :: farcall_error_status, farcall_error_message, farcall_status_text

  interface
    ! Calls a function, and returns when its arrays are filled.
    integer(c_int) function farcall_call(function, &
      a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, &
      a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, &
      a38, a39, a40) &
      bind(c, name="farcall_fortran_call")
      import :: c_int, farcall_function
      type(farcall_function), value :: function
      type(*), dimension(..), contiguous, optional :: a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, &
        a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, &
        a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, a40
    end function

    ! Starts a call, and returns its session; 0 on failure.
    integer(c_int64_t) function farcall_call_async(function, &
      a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, &
      a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, &
      a38, a39, a40) &
      bind(c, name="farcall_fortran_call_async")
      import :: c_int64_t, farcall_function
      type(farcall_function), value :: function
      type(*), dimension(..), asynchronous, optional :: a1, a2, a3, a4, a5, a6, a7, a8, a9, &
        a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, &
        a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, a40
    end function

    ! Stores an array at the server, and returns its handle, which is null on failure. The server
    ! keeps the array until farcall_drop, until the connection ends, or until a day after its last
    ! use.
    type(farcall_handle) function farcall_put(server, array) bind(c, name="farcall_fortran_put")
      import :: farcall_handle, farcall_server
      type(farcall_server), value :: server
      type(*), dimension(..), contiguous, intent(in) :: array
    end function

    ! Gets a stored array, after all earlier calls that use it.
    integer(c_int) function farcall_get(handle, array) bind(c, name="farcall_fortran_get")
      import :: c_int, farcall_handle
      type(farcall_handle), value :: handle
      type(*), dimension(..), contiguous :: array
    end function

    integer(c_int) function c_drop(handle) bind(c, name="farcall_drop_array")
      import :: c_int, farcall_handle
      type(farcall_handle), value :: handle
    end function

    ! FARCALL_RUNNING if the call has not ended, else its result.
    integer(c_int) function farcall_probe(session) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: session
    end function

    ! Waits for the end of a call, at most `timeout` seconds; a negative number means no limit.
    integer(c_int) function farcall_wait(session, timeout) bind(c)
      import :: c_int, c_int64_t, c_double
      integer(c_int64_t), value :: session
      real(c_double), value :: timeout
    end function

    ! Waits until a call to the server has ended that no wait has reported; `which` is 0 if none is
    ! left. A server that is not connected stands for all servers.
    integer(c_int) function farcall_wait_any(server, timeout, which) bind(c)
      import :: c_int, c_int64_t, c_double, farcall_server
      type(farcall_server), value :: server
      real(c_double), value :: timeout
      integer(c_int64_t), intent(out) :: which
    end function

    ! Waits until all calls to the server have ended that no wait has reported. A server that is not
    ! connected stands for all servers.
    integer(c_int) function farcall_wait_all(server, timeout) bind(c)
      import :: c_int, c_double, farcall_server
      type(farcall_server), value :: server
      real(c_double), value :: timeout
    end function

    ! The next session that failed in the last wait of this thread; 0 if there are no more.
    integer(c_int64_t) function farcall_next_failed() bind(c)
      import :: c_int64_t
    end function

    ! Gives a call up.
    integer(c_int) function farcall_cancel(session) bind(c)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: session
    end function

    ! Gives up all calls to the server; to all servers, if it is not connected.
    integer(c_int) function farcall_cancel_all(server) bind(c)
      import :: c_int, farcall_server
      type(farcall_server), value :: server
    end function

    ! The times of a call; zeros if it has failed or has not ended.
    type(farcall_times) function farcall_session_times(session) bind(c)
      import :: c_int64_t, farcall_times
      integer(c_int64_t), value :: session
    end function

    ! The times of the last call of the function, in any thread.
    type(farcall_times) function farcall_times_of(function) bind(c)
      import :: farcall_function, farcall_times
      type(farcall_function), value :: function
    end function

    ! Memory for arrays, for c_f_pointer. If the server is on this host, it is shared with the
    ! server, and calls do not copy it. A call that was given up may write there until the server
    ! has ended it: free the memory, and allocate other memory for the next call.
    type(c_ptr) function farcall_allocate(server, bytes) bind(c)
      import :: c_ptr, c_size_t, farcall_server
      type(farcall_server), value :: server
      integer(c_size_t), value :: bytes
    end function

    ! Frees memory from farcall_allocate.
    subroutine farcall_free(memory) bind(c)
      import :: c_ptr
      type(c_ptr), value :: memory
    end subroutine

    ! The status of the last operation of this thread that failed.
    integer(c_int) function farcall_error_status() bind(c)
      import :: c_int
    end function

    type(c_ptr) function c_connect(address) bind(c, name="farcall_connect")
      import :: c_ptr
      type(c_ptr), value :: address
    end function

    subroutine c_disconnect(server) bind(c, name="farcall_disconnect")
      import :: farcall_server
      type(farcall_server), value :: server
    end subroutine

    type(c_ptr) function c_object_new(server, name) bind(c, name="farcall_object_new")
      import :: c_ptr, c_char, farcall_server
      type(farcall_server), value :: server
      character(kind=c_char), intent(in) :: name(*)
    end function
    type(c_ptr) function c_object_method(object, name) bind(c, name="farcall_object_method")
      import :: c_ptr, c_char, farcall_object
      type(farcall_object), value :: object
      character(kind=c_char), intent(in) :: name(*)
    end function

    subroutine c_object_free(object) bind(c, name="farcall_drop_object")
      import :: farcall_object
      type(farcall_object), value :: object
    end subroutine

    type(c_ptr) function c_function_of(server, name) bind(c, name="farcall_function_of")
      import :: c_ptr, c_char, farcall_server
      type(farcall_server), value :: server
      character(kind=c_char), intent(in) :: name(*)
    end function

    integer(c_int) function c_wait_or(sessions, count, timeout, which) &
      bind(c, name="farcall_wait_or")
      import :: c_int, c_int64_t, c_size_t, c_double
      integer(c_int64_t), intent(in) :: sessions(*)
      integer(c_size_t), value :: count
      real(c_double), value :: timeout
      integer(c_int64_t), intent(out) :: which
    end function

    integer(c_int) function c_wait_and(sessions, count, timeout) bind(c, name="farcall_wait_and")
      import :: c_int, c_int64_t, c_size_t, c_double
      integer(c_int64_t), intent(in) :: sessions(*)
      integer(c_size_t), value :: count
      real(c_double), value :: timeout
    end function

    type(c_ptr) function c_error_message() bind(c, name="farcall_error_message")
      import :: c_ptr
    end function

    type(c_ptr) function c_status_text(status) bind(c, name="farcall_status_text")
      import :: c_ptr, c_int
      integer(c_int), value :: status
    end function

    integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function
  end interface

contains

  ! Connects to `farcall://host:port`, `unix:///path` or `ssh://host`. Without an address, it
  ! connects to the server that the environment names, or else to this machine. Without `status`, a
  ! failure stops the program.
  subroutine farcall_connect(server, address, status)
    type(farcall_server), intent(out) :: server
    character(*), intent(in), optional :: address
    integer(c_int), intent(out), optional :: status
    character(kind=c_char), allocatable, target :: text(:)

    if (present(address)) then
      text = c_text(address)
      server%handle = c_connect(c_loc(text))
    else
      server%handle = c_connect(c_null_ptr)
    end if
    call check(server%handle, "farcall_connect", status)
  end subroutine

  ! Closes the connection; asynchronous calls under way are cancelled.
  subroutine farcall_disconnect(server)
    type(farcall_server), intent(inout) :: server
    call c_disconnect(server)
    server%handle = c_null_ptr
  end subroutine

  ! The function with this name. Without `status`, a failure stops the program.
  type(farcall_function) function farcall_function_of(server, name, status) result(function)
    type(farcall_server), intent(in) :: server
    character(*), intent(in) :: name
    integer(c_int), intent(out), optional :: status

    function%handle = c_function_of(server, c_text(name))
    call check(function%handle, "farcall_function_of", status)
  end function

  ! Makes an object of a class, which has its own process at the server. Without `status`, a failure
  ! stops the program.
  type(farcall_object) function farcall_object_new(server, name, status) result(object)
    type(farcall_server), intent(in) :: server
    character(*), intent(in) :: name
    integer(c_int), intent(out), optional :: status

    object%handle = c_object_new(server, c_text(name))
    call check(object%handle, "farcall_object_new", status)
  end function

  ! The method with this name. Call it like a function, as long as the object exists.
  type(farcall_function) function farcall_object_method(object, name, status) result(function)
    type(farcall_object), intent(in) :: object
    character(*), intent(in) :: name
    integer(c_int), intent(out), optional :: status

    function%handle = c_object_method(object, c_text(name))
    call check(function%handle, "farcall_object_method", status)
  end function

  ! Drops the object at its server.
  subroutine farcall_object_free(object)
    type(farcall_object), intent(inout) :: object
    call c_object_free(object)
    object%handle = c_null_ptr
  end subroutine

  ! Drops the array at the server. Calls that use it complete.
  integer(c_int) function farcall_drop(handle) result(status)
    type(farcall_handle), intent(inout) :: handle
    status = c_drop(handle)
    handle%handle = c_null_ptr
  end function

  ! Waits until one of the calls has ended; `which` is its session.
  integer(c_int) function farcall_wait_or(sessions, timeout, which) result(status)
    integer(c_int64_t), intent(in) :: sessions(:)
    real(c_double), intent(in) :: timeout
    integer(c_int64_t), intent(out) :: which
    status = c_wait_or(sessions, size(sessions, kind=c_size_t), timeout, which)
  end function

  ! Waits until all of the calls have ended.
  integer(c_int) function farcall_wait_and(sessions, timeout) result(status)
    integer(c_int64_t), intent(in) :: sessions(:)
    real(c_double), intent(in) :: timeout
    status = c_wait_and(sessions, size(sessions, kind=c_size_t), timeout)
  end function

  ! The error message of the last operation of this thread that failed.
  function farcall_error_message() result(text)
    character(:), allocatable :: text
    text = fortran_text(c_error_message())
  end function

  ! The text of a status.
  function farcall_status_text(status) result(text)
    integer(c_int), intent(in) :: status
    character(:), allocatable :: text
    text = fortran_text(c_status_text(status))
  end function

  ! Sets `status`; without `status`, a failure stops the program.
  subroutine check(handle, what, status)
    type(c_ptr), intent(in) :: handle
    character(*), intent(in) :: what
    integer(c_int), intent(out), optional :: status

    if (present(status)) then
      status = FARCALL_OK
      if (.not. c_associated(handle)) status = farcall_error_status()
    else if (.not. c_associated(handle)) then
      write (error_unit, "(3a)") what, ": ", farcall_error_message()
      error stop
    end if
  end subroutine

  pure function c_text(text) result(characters)
    character(*), intent(in) :: text
    character(kind=c_char) :: characters(len_trim(text) + 1)
    integer :: i
    do i = 1, len_trim(text)
      characters(i) = text(i:i)
    end do
    characters(len_trim(text) + 1) = c_null_char
  end function

  function fortran_text(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer :: i, length
    length = int(c_strlen(pointer))
    call c_f_pointer(pointer, characters, [length])
    allocate (character(length) :: text)
    do i = 1, length
      text(i:i) = characters(i)
    end do
  end function
end module
