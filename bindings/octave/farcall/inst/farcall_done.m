## -*- texinfo -*-
## @deftypefn {} {@var{has_ended} =} farcall_done (@var{call})
## Return whether a call has ended, without waiting.
## @seealso{farcall_start, farcall_result}
## @end deftypefn

function has_ended = farcall_done (call)
  if (nargin != 1)
    print_usage ();
  endif
  has_ended = __farcall__ ("done", call);
endfunction

%!error <Invalid call> farcall_done ()
%!error <CALL must be a call in progress> farcall_done ({})

%!testif ; ! isempty (getenv ("FARCALL_TEST_SERVER"))
%! server = farcall_connect (getenv ("FARCALL_TEST_SERVER"));
%! call = farcall_start (server.dgesv, 1, 1, 2, 1, 4, 1);
%! farcall_result (call);
%! assert (farcall_done (call));
