## -*- texinfo -*-
## @deftypefn {} {@var{pointer} =} __farcall_pointer__ (@var{f})
## Return what the function handle of a server's function holds.  It is not for programs.
## @end deftypefn

function pointer = __farcall_pointer__ (f)
  if (is_function_handle (f))
    told = functions (f);
    if (isfield (told, "workspace") && isfield (told.workspace{1}, "pointer"))
      pointer = told.workspace{1}.pointer;
      return;
    endif
  endif
  error ("farcall:argument", "F must be a function of a server, from farcall_function ()");
endfunction

%!error <F must be a function of a server> __farcall_pointer__ (@(x) x)
%!error <F must be a function of a server> __farcall_pointer__ ("dgesv")
