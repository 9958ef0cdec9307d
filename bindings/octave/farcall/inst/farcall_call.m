## -*- texinfo -*-
## @deftypefn {} {@var{results} =} farcall_call (@var{server}, @var{name}, @dots{})
## Call a function of a server by name.
##
## The arguments after @var{name} are those of the function.  @var{results} is a structure.
## @seealso{farcall_function}
## @end deftypefn

function results = farcall_call (server, name, varargin)
  if (nargin < 2)
    print_usage ();
  endif
  results = farcall_function (server, name) (varargin{:});
endfunction

%!error <Invalid call> farcall_call ()
%!error <SERVER must be a connection> farcall_call ("host", "dgesv")

%!testif ; ! isempty (getenv ("FARCALL_TEST_SERVER"))
%! server = farcall_connect (getenv ("FARCALL_TEST_SERVER"));
%! a = single ([4, 0; 0, 2]);
%! solved = farcall_call (server, "sgesv", 2, 1, a, 2, [8; 8], 2);
%! assert (solved.b, single ([2; 4]));
%! z = farcall_call (server, "zgesv", 1, 1, 1i, 1, 2, 1);
%! assert (z.b, -2i);
%! whole = farcall_call (server, "dgesv", int8 (2), true, eye (2), uint64 (2), sparse ([3; 5]), 2);
%! assert (whole.b, [3; 5]);

%!function refused (text, varargin)
%!  server = farcall_connect (getenv ("FARCALL_TEST_SERVER"));
%!  try
%!    farcall_call (server, "dgesv", varargin{:});
%!    error ("no error");
%!  catch problem
%!    assert (problem.identifier, "farcall:argument");
%!    assert (! isempty (strfind (problem.message, text)), problem.message);
%!  end_try_catch
%!endfunction

%!testif ; ! isempty (getenv ("FARCALL_TEST_SERVER"))
%! refused ("takes 6 arguments (n, nrhs, a, lda, b, ldb), not 1", 2);
%! refused ("argument `a` must be 2x2, not 3x3", 2, 1, eye (3), 2, [1; 1], 2);
%! refused ("argument `b` must be 2x1, not 3x1", 2, 1, eye (2), 2, [1; 1; 1], 2);
%! refused ("argument `n`: 2.5 is not a whole number", 2.5, 1, eye (2), 2, [1; 1], 2);
%! refused ("argument `n`: NaN is not a whole number", NaN, 1, eye (2), 2, [1; 1], 2);
%! refused ("from -2147483648 to 2147483647", 2^31, 1, eye (2), 2, [1; 1], 2);
%! refused ("argument `n` must have one element, not 2", [2, 2], 1, eye (2), 2, [1; 1], 2);
%! refused ("argument `b` must be numeric, not char", 2, 1, eye (2), 2, "xy", 2);
%! refused ("argument `b` must be real, not complex", 2, 1, eye (2), 2, [1i; 1], 2);
%! refused ("argument `b` must be numeric, not cell", 2, 1, eye (2), 2, {1, 1}, 2);
%! refused ("argument `b` must be numeric, not struct", 2, 1, eye (2), 2, struct (), 2);
%! refused ("argument `b` must be numeric, not function_handle", 2, 1, eye (2), 2, @sin, 2);
