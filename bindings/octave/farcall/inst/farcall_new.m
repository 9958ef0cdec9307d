## -*- texinfo -*-
## @deftypefn {} {@var{object} =} farcall_new (@var{server}, @var{class})
## Make an object of a class at a server.
##
## @var{class} is @qcode{"module/class"} or @qcode{"class"} alone.  The methods of the object are
## @code{@var{object}.name}.  The server drops the object when nothing of the program needs it.
## @seealso{farcall_method}
## @end deftypefn

function object = farcall_new (server, class)
  if (nargin != 2)
    print_usage ();
  endif
  if (! ischar (class) || rows (class) != 1)
    error ("farcall:argument", "CLASS must be the name of a class");
  endif
  object = __farcall__ ("object", server, class);
endfunction

%!error <Invalid call> farcall_new ()
%!error <SERVER must be a connection> farcall_new (1, "Counter")

%!testif ; ! isempty (getenv ("FARCALL_TEST_SERVER"))
%! server = farcall_connect (getenv ("FARCALL_TEST_SERVER"));
%! fail ("farcall_new (server, 7)", "CLASS must be the name");
%! fail ("farcall_new (server, \"NoSuchClass\")", "NoSuchClass");
