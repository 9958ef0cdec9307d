## -*- texinfo -*-
## @deftypefn {} {@var{f} =} farcall_method (@var{object}, @var{name})
## Return a method of an object as a function handle.
##
## @code{@var{object}.name} is the same.  The methods of an object run one after the other.
## @seealso{farcall_new, farcall_function}
## @end deftypefn

function f = farcall_method (object, name)
  if (nargin != 2)
    print_usage ();
  endif
  if (! ischar (name) || rows (name) != 1)
    error ("farcall:argument", "NAME must be the name of a method");
  endif
  f = __farcall_handle__ (__farcall__ ("method", object, name));
endfunction

%!error <Invalid call> farcall_method ()
%!error <OBJECT must be an object of a server, from farcall_new> farcall_method (1, "add")
