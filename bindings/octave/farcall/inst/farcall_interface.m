## -*- texinfo -*-
## @deftypefn {} {@var{text} =} farcall_interface (@var{f})
## Return the interface of a function of a server, in the interface language.
##
## @example
## farcall_interface (server.dgesv)
## @end example
## @seealso{farcall_function}
## @end deftypefn

function text = farcall_interface (f)
  if (nargin != 1)
    print_usage ();
  endif
  text = __farcall__ ("interface", __farcall_pointer__ (f));
endfunction

%!error <Invalid call> farcall_interface ()
%!error <F must be a function of a server> farcall_interface (@sin)
%!error <F must be a function of a server> farcall_interface (1)

%!testif ; ! isempty (getenv ("FARCALL_TEST_SERVER"))
%! server = farcall_connect (getenv ("FARCALL_TEST_SERVER"));
%! text = farcall_interface (server.dgesv);
%! assert (! isempty (strfind (text, "dgesv(")));
