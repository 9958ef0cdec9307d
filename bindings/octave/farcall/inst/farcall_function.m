## -*- texinfo -*-
## @deftypefn {} {@var{f} =} farcall_function (@var{server}, @var{name})
## Return a function of a server as a function handle.
##
## @var{name} is the name of the function, @qcode{"module/name"} or @qcode{"name"} alone.
## @code{@var{server}.name} is the same.  A call takes the arguments that the interface marks
## @code{IN} and @code{INOUT} in the order of the interface, and the names of files.  It returns a
## structure with the arguments that the interface marks @code{OUT} and @code{INOUT}.  It does not
## change its arguments.
## @seealso{farcall_call, farcall_interface, farcall_start}
## @end deftypefn

function f = farcall_function (server, name)
  if (nargin != 2)
    print_usage ();
  endif
  if (! ischar (name) || rows (name) != 1)
    error ("farcall:argument", "NAME must be the name of a function");
  endif
  f = __farcall_handle__ (__farcall__ ("function", server, name));
endfunction

%!error <Invalid call> farcall_function ()
%!error <SERVER must be a connection, from farcall_connect> farcall_function (1, "dgesv")

%!testif ; ! isempty (getenv ("FARCALL_TEST_SERVER"))
%! server = farcall_connect (getenv ("FARCALL_TEST_SERVER"));
%! f = farcall_function (server, "lapack/dgesv");
%! assert (is_function_handle (f));
%! solved = f (2, 1, [2, 1; 1, 3], 2, [1; 1], 2);
%! assert (solved.b, [0.4; 0.2], 1e-15);
%! assert (solved.info == 0);
%! assert (class (solved.ipiv), "int32");
%! assert (cellfun (@(b) f (2, 1, [2, 1; 1, 3], 2, b, 2).b(1), {[1; 1], [2; 2]}), [0.4, 0.8], 1e-15);

%!testif ; ! isempty (getenv ("FARCALL_TEST_SERVER"))
%! server = farcall_connect (getenv ("FARCALL_TEST_SERVER"));
%! fail ("farcall_function (server, 1)", "NAME must be the name");
%! fail ("farcall_function (server, [\"dgesv\", 0, \"x\"])", "NAME has a NUL");
%! try
%!   server.dgesvv;
%!   error ("no error");
%! catch problem
%!   assert (problem.identifier, "farcall:unknown-function");
%!   assert (! isempty (strfind (problem.message, "did you mean")));
%! end_try_catch
