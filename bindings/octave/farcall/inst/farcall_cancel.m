## -*- texinfo -*-
## @deftypefn  {} {} farcall_cancel (@var{call})
## @deftypefnx {} {@var{was_cancelled} =} farcall_cancel (@var{call})
## Cancel a call.
##
## The server stops it, and @code{farcall_result} then fails with the identifier
## @code{farcall:cancelled}.  A call that has ended keeps its results.
## @seealso{farcall_start}
## @end deftypefn

function varargout = farcall_cancel (call)
  if (nargin != 1)
    print_usage ();
  endif
  was_cancelled = __farcall__ ("cancel", call);
  if (nargout > 0)
    varargout{1} = was_cancelled;
  endif
endfunction

%!error <Invalid call> farcall_cancel ()
%!error <CALL must be a call in progress> farcall_cancel (1)
