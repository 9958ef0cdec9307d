"""What programs in C++ pass, beyond the script of all languages."""

import pytest
from programs import INCLUDE, compile_c, run
from servers import ROOT

LANGUAGES = ROOT / "testing" / "conformance" / "languages.idl"
WARNINGS = ["-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wpedantic"]
COMPILER = ["c++", "-std=c++20", *WARNINGS]
PROGRAM = """\
#include "farcall.hpp"
#include <cstdio>
#include <cstdlib>

int main(int, char **argv) {
  const farcall::Options options;
  const farcall::Server server(argv[1], options);
  const farcall::Function join = server.function("join");
  std::array<char, 64> text{};
  std::int32_t length = 0;

  // Texts that nothing holds but the item of the range.
  const std::vector<int> numbers{1000000001, 1000000002, 1000000003};
  const auto made = [](int number) { return std::string(40, '=') + std::to_string(number % 10); };
  const auto brief = [](int number) { return std::to_string(number); };
  join(3, numbers | std::views::transform(brief), "-", text, farcall::out(length));
  std::printf("%.*s\\n", length, text.data());
  join(1, numbers | std::views::take(1) | std::views::transform(made), "-", text,
       farcall::out(length));
  std::printf("%d\\n", length);
  // A call does not read the texts that it only returns.
  std::vector<std::string> parts(2, std::string(12, '\\0'));
  server.call("split", "one,two", ',', 2, parts, farcall::out(length));
  std::printf("%s|%s\\n", parts[0].c_str(), parts[1].c_str());

  const auto refused = [&](auto &&call) {
    try {
      call();
    } catch (const farcall::Error &error) {
      std::printf("%s\\n", error.what());
    }
  };
  parts[1] = std::string("b\\0.", 3);
  refused([&] { server.call("capitals", 2, 12, parts); });
  const std::vector<const char *> words{"a", nullptr};
  refused([&] { join(2, words, "-", text, farcall::out(length)); });
  refused([&] { server.function(std::string("join\\0.", 6)); });
  refused([&] { farcall::Server other(std::string("farcall://127.0.0.1:1\\0.", 23)); });
  refused([&] { farcall::Server other(std::getenv("FARCALL_IS_NOT_SET")); });
  refused([&] { server.object(std::string("Counter\\0.", 9)); });
}
"""


def output_of(text, tmp_path, server):
    """What a program prints that calls the server."""
    source = tmp_path / "program.cpp"
    source.write_text(text)
    ran = run(compile_c(source, tmp_path / "program", compiler=COMPILER), server.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_what_a_program_passes_is_whole_or_refused(start, tmp_path):
    printed = output_of(PROGRAM, tmp_path, start(LANGUAGES))
    no_nul = "expected a name without NUL, given one with a NUL in it"
    assert printed.splitlines() == [
        "1000000001-1000000002-1000000003",
        "41",
        "one|two",
        "expected strings without NUL, given a range with one",
        "expected a text, given NULL",
        *[no_nul] * 2,
        "expected an address, given NULL",
        no_nul,
    ]


NOT_ALLOWED = """\
#include "farcall.hpp"
void call(const farcall::Function &function) {{ function({}); }}
"""


@pytest.mark.parametrize(
    ("standard", "argument", "said"),
    [
        ("gnu++20", "nullptr", "not a number, text, texts, or an array"),
        ("gnu++20", "static_cast<__int128>(1)", "not a number, text, texts, or an array"),
        ("gnu++17", "1", "farcall.hpp needs C++20: compile with -std=c++20"),
    ],
)
def test_what_a_call_cannot_take_does_not_compile(tmp_path, standard, argument, said):
    source = tmp_path / "refused.cpp"
    source.write_text(NOT_ALLOWED.format(argument))
    words = ["c++", f"-std={standard}", "-fsyntax-only", f"-I{INCLUDE}", source]
    ran = run(*words)
    assert (ran.returncode, said in ran.stderr) == (1, True), ran.stderr


GIVEN_UP = """\
#include "farcall.hpp"
#include <cstdio>
#include <fstream>

static long resident_pages() {
  std::ifstream file("/proc/self/statm");
  long size = 0, resident = 0;
  file >> size >> resident;
  return resident;
}

int main(int, char **argv) {
  const farcall::Server server(argv[1]);
  const farcall::Function dot = server.function("dot"), greet = server.function("greet");
  const std::vector<double> x(1 << 20);
  const std::string text(1 << 18, 'x');
  std::array<char, 8> room{};
  double result = 0;
  std::int32_t length = 0;
  long begun = 0;
  for (int round = 0; round < 60; round++) {
    if (round == 2)
      begun = resident_pages();
    const auto given_up = dot.async(1 << 20, x, x, farcall::out(result));
    const auto ended = greet.async(text, text, 8, room, farcall::out(length));
    while (!ended.done())
      continue;
  }
  std::printf("%ld\\n", resident_pages() - begun);
}
"""


def test_a_call_that_was_given_up_leaves_no_arrays_behind(start, tmp_path):
    """Nor does one that has ended, and that no wait has reported."""
    pages = int(output_of(GIVEN_UP, tmp_path, start(LANGUAGES)))
    assert pages < 5000, f"{pages} pages more"
