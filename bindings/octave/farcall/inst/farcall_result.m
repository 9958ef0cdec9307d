## -*- texinfo -*-
## @deftypefn  {} {@var{results} =} farcall_result (@var{call})
## @deftypefnx {} {@var{results} =} farcall_result (@var{call}, @var{timeout})
## Wait for the end of a call, and return its results.
##
## If the call has not ended within @var{timeout} seconds, this fails with the identifier
## @code{farcall:timeout}, and the call goes on.  An interrupt ends the wait.
## @seealso{farcall_start}
## @end deftypefn

function results = farcall_result (call, timeout = Inf)
  if (nargin < 1)
    print_usage ();
  endif
  results = __farcall__ ("result", call, timeout);
endfunction

%!error <Invalid call> farcall_result ()
%!error <CALL must be a call in progress, from farcall_start> farcall_result (1)

%!testif ; ! isempty (getenv ("FARCALL_TEST_SERVER"))
%! server = farcall_connect (getenv ("FARCALL_TEST_SERVER"));
%! call = farcall_start (server.dgesv, 1, 1, 2, 1, 4, 1);
%! assert (farcall_result (call, 60).b, 2);
%! assert (farcall_result (call).b, 2);
%! fail ("farcall_result (call, -1)", "TIMEOUT must be");
