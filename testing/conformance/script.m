% The call script in Octave: its output must equal script.txt. The server is the first argument.
1;
pkg load farcall

function say (name, varargin)
  printf ("%s: %s\n", name, [varargin{:}]);
end

function text = spaced (numbers)
  text = strjoin (arrayfun (@(x) sprintf ("%d", x), double (numbers(:)'), "UniformOutput", false), " ");
end

% Numbers times 100, so that every language prints them alike.
function show (name, values)
  say (name, spaced (round (100 * values)));
end

function text = until_nul (characters)
  text = characters(:)';
  text = text(1:find ([text, "\0"] == "\0", 1) - 1);
end

function arrays (f)
  show ("scalars", f("scalars")("A", -2, 300000, 5e9, 1.5, -0.25).values);
  show ("axpy", f("axpy")(3, 2, [1, 2, 3], [10, 20, 30]).y);
  say ("types", spaced (f("types")(3, [10, -20, 30], [1.5, 2.5, 3.5], [64, 11, 96]).sums));
  a = f("section")(2, 3, [1, 2, 3; 4, 5, 6]).a;
  say ("section", spaced (a'));
  show ("shrunk", f("shrunk")(8, 1, 7, 2, 0:7).sum);
end

function kinds (f)
  greeting = f("greet")("hello", "world", 32);
  say ("greet", until_nul (greeting.text), " (", spaced (greeting.length), ")");
  joined = f("join")(3, {"one", "", "three"}, "+");
  say ("join", until_nul (joined.text), " (", spaced (joined.length), ")");
  parts = f("split")("one,,three,a dozen characters", ",", 4);
  say ("split", strjoin (parts.words', "|"), " (", spaced (parts.count), ")");
  words = f("capitals")(3, 8, {"one", "two full", ""}).words;
  say ("capitals", strjoin (words(:)', "|"));
  rotated = f("rotate")(2, 1i, [1, 2i], 1.5 + 2.5i);
  both = @(z) spaced (round (100 * [real(z(:)), imag(z(:))]'));
  say ("rotate", both (rotated.z), " / ", both (rotated.conjugate));
  show ("sort", f("sort")(4, [5, -3, 2, 1]).sorted);
  show ("dot", f("dot")(3, [1, 2, 3], [4, 5, 6]).r);
  a = f("grid")(3, 2).a;
  assert (size (a), [3, 2]);
  assert (a(3, 1), 31);
  show ("grid", a);
end

function failing (what, work)
  try
    work ();
  catch problem
    say (what, strrep (strrep (problem.identifier, "farcall:", ""), "-", " "));
  end
end

function files (f)
  moved = f("upper")("text", "capitals", "tally");
  say ("files", spaced (moved.bytes), " bytes");
  failing ("no such file", @() f("upper")("nothing", "new", "tally"));
end

function objects (server, f)
  one = farcall_new (server, "conformance/Counter");
  other = farcall_new (server, "Counter");
  values = [one.add(3).value, other.add(7).value, one.add(7).value];
  say ("objects", spaced (values));
  failing ("method of no object", @() f("Counter.add")(1));
end

function failures (f)
  x = [1, 2, 3];
  y = [4, 5, 6];
  failing ("wrong argument", @() f("dot")(3, x(1:2), y));
  failing ("unknown function", @() f("nothing"));
  failing ("crash", @() f("crash")(1));
  show ("after the crash", f("dot")(3, x, y).r);
end

function several (f)
  nap = f("nap");
  calls = arrayfun (@(i) {farcall_start(nap, 10 * i)}, 1:3);
  say ("several at once", spaced (cellfun (@(call) farcall_result (call, 30).slept, calls)));

  left = arrayfun (@(i) {farcall_start(nap, 1)}, 1:3);
  count = 0;
  while (! isempty (left))
    ended = cellfun (@farcall_done, left);
    count += sum (ended);
    left = left(! ended);
  end
  say ("wait any", spaced (count), " of 3");

  call = farcall_start (nap, 300);
  try
    farcall_result (call, 0.01);
  catch problem
    assert (problem.identifier, "farcall:timeout");
    say ("time-out", "running, then ", spaced (farcall_result (call, 30).slept));
  end

  call = farcall_start (nap, 60000);
  farcall_cancel (call);
  failing ("cancel", @() farcall_result (call));
end

server = farcall_connect (argv (){end});
f = @(name) farcall_function (server, ["conformance/", name]);
arrays (f);
kinds (f);
files (f);
objects (server, f);
failures (f);
several (f);
