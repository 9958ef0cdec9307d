## -*- texinfo -*-
## @deftypefn {} {@var{call} =} farcall_start (@var{f}, @dots{})
## Start a call of a server's function, and return without waiting for its end.
##
## @var{f} is from @code{farcall_function}, and the other arguments are those of the function.
## Several calls run at the same time.  If nothing of the program has @var{call} any more, the call
## is cancelled.
##
## @example
## @group
## call = farcall_start (server.dgesv, n, 1, a, n, b, n);
## solved = farcall_result (call);
## @end group
## @end example
## @seealso{farcall_result, farcall_done, farcall_cancel, farcall_times}
## @end deftypefn

function call = farcall_start (f, varargin)
  if (nargin < 1)
    print_usage ();
  endif
  call = __farcall__ ("start", __farcall_pointer__ (f), varargin{:});
endfunction

%!error <Invalid call> farcall_start ()
%!error <F must be a function of a server> farcall_start (@sin, 1)

%!testif ; ! isempty (getenv ("FARCALL_TEST_SERVER"))
%! server = farcall_connect (getenv ("FARCALL_TEST_SERVER"));
%! a = [2, 1; 1, 3];
%! b = [1; 1];
%! calls = cell (1, 5);
%! for i = 1:5
%!   calls{i} = farcall_start (server.dgesv, 2, 1, a, 2, i * b, 2);
%! endfor
%! for i = 5:-1:1
%!   assert (farcall_result (calls{i}).b, i * [0.4; 0.2], 1e-14);
%! endfor
%! assert (a, [2, 1; 1, 3]);
%! assert (b, [1; 1]);
