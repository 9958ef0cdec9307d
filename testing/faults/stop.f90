! The functions of stop.idl.
subroutine stops(n)
  integer, intent(in) :: n
  stop n
end subroutine

subroutine greet(name, greeting, length)
  character(*), intent(in) :: name
  character(*), intent(out) :: greeting
  integer, intent(out) :: length
  greeting = 'hello ' // name
  length = len(name) * 100 + len(greeting)
end subroutine

complex(8) function zsum(n, x, start)
  integer, intent(in) :: n
  complex(8), intent(in) :: x(n), start
  zsum = start + sum(x)
end function

complex(4) function csum(n, x, start)
  integer, intent(in) :: n
  complex(4), intent(in) :: x(n), start
  csum = start + sum(x)
end function
