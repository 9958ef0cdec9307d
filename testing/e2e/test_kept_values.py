"""What R, Octave and Java make of numbers and texts: each arrives as it is, or is refused."""

import pathlib

import pytest
from programs import command, octave, r_library, run
from servers import ServerProcess

HERE = pathlib.Path(__file__).parent

R = """
library(farcall)
s <- farcall_connect(commandArgs(TRUE)[1])
refused <- function(call, words) {
    said <- tryCatch({ call; "nothing" }, farcall_argument = conditionMessage)
    if (!grepl(words, said, fixed = TRUE)) stop(words, " expected, and not: ", said)
}
stopifnot(s$octet(255)$y == 255, s$word(65535)$y == 65535, s$wide(2^32 - 1)$y == 2^32 - 1)
stopifnot(s$octets(2, c(1, 255))$z == c(1, 255), s$octets(1, as.raw(200))$y == as.raw(200))
stopifnot(s$words(2, c(0, 2^32 - 1))$y == c(0, 2^32 - 1), s$narrow(0.5)$y == 0.5)
stopifnot(s$lengths(2, c("\\u20ac", ""))$y == c(3, 0))
latin <- iconv("\\u00e9", "UTF-8", "latin1")
stopifnot(s$length(latin)$n == 2)
refused(s$octet(-1), "-1 is not a whole number from 0 to 255")
refused(s$octets(1, 256), "256 is not a whole number from 0 to 255")
refused(s$wide(2^32), "4294967296 is not a whole number from 0 to 4294967295")
refused(s$narrow(1e300), "too large for a float")
refused(s$floats(1, 16777217L), "a float cannot hold 16777217 exactly")
refused(s$doubles(1, factor("a")), "is a factor")
refused(s$length(NA_character_), "has an NA, which is no text")
refused(s$lengths(2, c("a", NA)), "has an NA, which is no text")
"""

OCTAVE = """
function refused (call, words)
  said = "nothing";
  try, call (); catch wrong, said = wrong.message; end
  if (isempty (strfind (said, words))), error ("%s expected, and not: %s", words, said); end
end
assert (s.octet (255).y, int32 (255)); assert (s.word (65535).y, int32 (65535));
assert (s.wide (intmax ("uint32")).y, int64 (2^32 - 1));
assert (s.wide (2^32 - 1).y, int64 (2^32 - 1));
assert (s.octets (2, uint8 ([1, 255])).z, int32 ([1; 255]));
assert (s.octets (1, 200).y, uint8 (200));
assert (s.words (2, [0, 2^32 - 1]).y, uint32 ([0; 2^32 - 1])); assert (s.narrow (0.5).y, 0.5);
refused (@() s.octet (-1), "-1 is not a whole number from 0 to 255");
refused (@() s.octets (1, 256), "256 is not a whole number from 0 to 255");
refused (@() s.wide (2^32), "not a whole number from 0 to 4294967295");
refused (@() s.narrow (1e300), "too large for a float");
refused (@() s.floats (1, int32 (16777217)), "more digits");
refused (@() s.doubles (1, int64 (2)^53 + 1), "more digits");
"""

JAVA = """
import farcall.*;

public final class Kept {
    public static void main(String[] arguments) {
        try (Server server = new Server(arguments[0])) {
            int[] y = new int[2];
            server.function("kept/octets").call(2, new byte[] {1, -1}, new byte[2], y);
            expect(y[1] == 255);
            server.function("kept/lengths").call(2, new String[] {"\\u20ac", ""}, y);
            expect(y[0] == 3 && y[1] == 0);
            refused(server, "kept/octet", "-1", -1, new int[1]);
            refused(server, "kept/narrow", "16777217", 16777217, new double[1]);
            refused(server, "kept/length", "surrogate", "\\ud800", new long[1]);
            refused(server, "kept/lengths", "null", 2, new String[] {"a", null}, y);
            refused(server, "kept/lengths", "NUL", 2, new String[] {"a\\0b"}, y);
        }
    }

    private static void expect(boolean right) {
        if (!right) throw new AssertionError();
    }

    private static void refused(Server server, String name, String word, Object... given) {
        try {
            server.function(name).call(given);
        } catch (FarcallException wrong) {
            if (wrong.getMessage().contains(word)) return;
            throw wrong;
        }
        throw new AssertionError(name + " was not refused");
    }
}
"""


@pytest.fixture(scope="module")
def kept():
    server = ServerProcess(HERE / "kept.idl", options=["--allow-code"])
    yield server
    server.stop()


def test_in_r(kept):
    ran = run("Rscript", "--vanilla", "-e", R, kept.address, R_LIBS=str(r_library()))
    assert ran.returncode == 0, ran.stderr


def test_in_octave(kept):
    first = f"pkg load farcall; s = farcall_connect ('{kept.address}'); "
    ran = run(*octave(), "--eval", first + OCTAVE)
    assert ran.returncode == 0, ran.stderr


def test_in_java(kept, tmp_path):
    (tmp_path / "Kept.java").write_text(JAVA)
    ran = run(*command(tmp_path / "Kept.java", tmp_path), kept.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr
