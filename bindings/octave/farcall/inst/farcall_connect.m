## -*- texinfo -*-
## @deftypefn  {} {@var{server} =} farcall_connect ()
## @deftypefnx {} {@var{server} =} farcall_connect (@var{address})
## @deftypefnx {} {@var{server} =} farcall_connect (@var{address}, @var{timeout})
## Connect to a server, or to all servers behind a metaserver.
##
## @var{address} is a text such as @qcode{"farcall://host:3717"}, @qcode{"ssh://host"} or
## @qcode{"meta://host:3718"}.  Without it, the environment names the server.  A call ends with an
## error after @var{timeout} seconds; 0 means no limit, which is the default.
##
## The functions of the server are @code{@var{server}.name}:
##
## @example
## @group
## server = farcall_connect ("ssh://node7");
## solved = server.dgesv (2, 1, [2, 1; 1, 3], 2, [1; 1], 2);
## solved.b
##   @result{} 0.4000
##      0.2000
## @end group
## @end example
##
## The connection ends when nothing of the program needs it.
## @seealso{farcall_function, farcall_new}
## @end deftypefn

function server = farcall_connect (address = "", timeout = 0)
  if (! ischar (address) || rows (address) > 1)
    error ("farcall:argument",
           "ADDRESS must be one text, such as \"farcall://host:3717\" or \"ssh://host\"");
  endif
  if (! isreal (timeout) || ! isscalar (timeout) || ! (timeout >= 0))
    error ("farcall:argument", "TIMEOUT must be a number of seconds from 0 on");
  endif
  server = __farcall__ ("connect", address, timeout);
endfunction

%!error <ADDRESS must be one text> farcall_connect (1)
%!error <ADDRESS must be one text> farcall_connect (["a"; "b"])
%!error <TIMEOUT must be a number> farcall_connect ("farcall://localhost:1", -1)
%!error <ADDRESS has a NUL> farcall_connect ("farcall://localhost:1\0")
%!error <not a server address> farcall_connect ("http://host")
%!error id=farcall:argument farcall_connect ("http://host")
%!error id=farcall:connection farcall_connect ("farcall://localhost:1")
