## -*- texinfo -*-
## @deftypefn {} {@var{f} =} __farcall_handle__ (@var{function})
## Return the function handle of a function of a server.  It is not for programs.
## @end deftypefn

function f = __farcall_handle__ (pointer)
  ## `__farcall_pointer__` finds the pointer by its name.
  f = @(varargin) __farcall__ ("call", pointer, varargin{:});
endfunction

%!assert (__farcall_pointer__ (__farcall_handle__ (7)), 7)
