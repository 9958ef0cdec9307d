"""What an old Java says of the Java library, what arrays of Java become, and what ends a wait."""

import pathlib
import re
import subprocess

import pytest
from programs import JAR, command, java, run
from servers import NAP, ROOT

PROGRAM = """
import farcall.Server;

public class Old {
    public static void main(String[] arguments) {
        try (Server server = new Server("farcall://127.0.0.1:1")) {
            server.function("f").call(1);
        }
    }
}
"""

ARRAYS = """
Module arrays;
Define sum(IN int n, IN double x[n], OUT double *total)
{ int i; *total = 0; for (i = 0; i < n; i++) *total += x[i]; }
Define two(IN int n, OUT double x[n], OUT double y[n])
{ int i; for (i = 0; i < n; i++) { x[i] = i; y[i] = 100 + i; } }
Define code(IN char c, OUT int *n) { *n = c; }
Define length(IN string s, OUT int *n) { *n = (int)strlen(s); }
"""

FAILS = """
Module fails;
Globals { void farcall_fail(const char *text); }
Define late(IN int ms) { usleep(1000 * ms); farcall_fail("the failure of this call"); }
Define both(IN int n, IN double big[n], IN double x[3], OUT double *total)
{ *total = big[n - 1] + x[0]; }
Define first(IN double x[3], IN int n, IN double big[n], OUT double *total)
{ *total = big[n - 1] + x[0]; }
DefClass Counter { DefState { static int count; }
    DefMethod add(IN int n, OUT int *value) { usleep(1000 * n); *value = count += n; } }
"""


@pytest.fixture(scope="module")
def old():
    """The folder of a JDK between 17 and 21, which `scripts/setup java17` installs."""
    setup = ROOT / "scripts" / "setup"
    subprocess.run([setup, "java17"], check=False, timeout=300)
    for javac in sorted(pathlib.Path("/usr/lib/jvm").glob("*/bin/javac")):
        said = subprocess.run([javac, "-version"], capture_output=True, text=True, check=True)
        release = re.match(r"javac (\d+)", said.stdout)
        if release and 17 <= int(release[1]) < 22:
            return javac.parent
    pytest.skip("no JDK 17 to 21: scripts/setup java17 could not install one")


def test_java_17_is_told_that_it_is_too_old(old, tmp_path):
    java()
    (tmp_path / "Old.java").write_text(PROGRAM)
    words = [old / "javac", "-cp", JAR, "-d", tmp_path, tmp_path / "Old.java"]
    built = subprocess.run(words, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    words = [old / "java", "-cp", f"{JAR}:{tmp_path}", "Old"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "the farcall package needs Java 22 or newer, and this is Java " in ran.stderr


def test_a_missing_library_is_named_with_the_remedy(tmp_path):
    (tmp_path / "Old.java").write_text(PROGRAM)
    words = [*java(), "-Dfarcall.library=/no/libfarcall.so", tmp_path / "Old.java"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == 1
    assert "cannot load /no/libfarcall.so: name its folder in LD_LIBRARY_PATH" in ran.stderr


def test_arrays_are_what_the_function_takes(start, tmp_path):
    (tmp_path / "arrays.idl").write_text(ARRAYS)
    server = start(tmp_path / "arrays.idl", options=["--allow-code"])
    program = command(ROOT / "testing" / "e2e" / "Buffers.java", tmp_path)
    ran = run(*program, server.address, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_threads_that_share_a_call_or_a_connection(start, tmp_path):
    (tmp_path / "fails.idl").write_text(FAILS)
    server = start(tmp_path / "fails.idl", options=["--allow-code"])
    program = command(ROOT / "testing" / "e2e" / "Threads.java", tmp_path)
    ran = run(*program, server.address, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_interrupt_ends_a_wait(start, tmp_path):
    (tmp_path / "nap.idl").write_text(NAP)
    server = start(tmp_path / "nap.idl")
    program = command(ROOT / "testing" / "e2e" / "Interrupts.java", tmp_path)
    ran = run(*program, server.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_call_can_be_asked_again_after_many_others(start, tmp_path):
    (tmp_path / "arrays.idl").write_text(ARRAYS)
    server = start(tmp_path / "arrays.idl", options=["--allow-code"])
    program = command(ROOT / "testing" / "e2e" / "Again.java", tmp_path)
    ran = run(*program, server.address, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
