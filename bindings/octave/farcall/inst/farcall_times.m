## -*- texinfo -*-
## @deftypefn {} {@var{times} =} farcall_times (@var{call})
## Return the times of a call that has ended, in seconds.
##
## The fields are @code{send} (until the server had the arguments), @code{exec} (in the library),
## @code{recv} (until the server had sent the results), @code{other} (the rest) and @code{total}.
## All are 0 if the call has failed or has not ended.
## @seealso{farcall_start, farcall_result}
## @end deftypefn

function times = farcall_times (call)
  if (nargin != 1)
    print_usage ();
  endif
  times = __farcall__ ("times", call);
endfunction

%!error <Invalid call> farcall_times ()
%!error <CALL must be a call in progress> farcall_times (1)

%!testif ; ! isempty (getenv ("FARCALL_TEST_SERVER"))
%! server = farcall_connect (getenv ("FARCALL_TEST_SERVER"));
%! call = farcall_start (server.dgesv, 1, 1, 2, 1, 4, 1);
%! farcall_result (call);
%! times = farcall_times (call);
%! assert (times.total > 0);
%! assert (times.send + times.exec + times.recv + times.other, times.total, 1e-6);
