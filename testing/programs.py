"""Programs of the tests and examples in other languages, compiled with this tree's libraries."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest
from servers import FARCALL, ROOT

BUILT = ROOT / "target" / "release"
INCLUDE = ROOT / "bindings" / "c" / "include"
LINK = [f"-L{BUILT}", f"-Wl,-rpath,{BUILT}", "-lfarcall", "-lpthread", "-lm"]
FORTRAN = BUILT / "fortran"
JAR = BUILT / "java" / "farcall.jar"


def dropin():
    """The drop-in library of `farcall offload`, which `make build` makes."""
    library = BUILT / "offload" / "libfarcall_lapack.so"
    if not library.is_file():
        files = [ROOT / "libraries" / name for name in ("lapack.idl", "blas.idl")]
        words = [FARCALL, "offload", "build", *files, "-o", library.parent]
        subprocess.run(words, check=True, timeout=120)
    return library


def compile_c(source, program, *, compiler=("cc", "-std=gnu11"), link=LINK):
    """Compiles with all warnings, which are errors."""
    subprocess.run(
        [*compiler, "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", source]
        + ["-x", "none", *link, "-o", program],
        check=True,
        timeout=120,
    )
    return program


def compile_fortran(source, program):
    """Compiles with the module."""
    if not (FORTRAN / "farcall.mod").is_file():
        pytest.skip("no gfortran 12 or newer: the Fortran module is not built")
    warnings = ["-std=f2018", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        ["gfortran", *warnings, "-g", "-O2", f"-I{FORTRAN}", f"-J{program.parent}", source]
        + [f"-L{FORTRAN}", "-lfarcall_fortran", *LINK, "-o", program],
        check=True,
        timeout=120,
    )
    return program


def java():
    """The command that runs a Java source file with the library."""
    found = subprocess.run(
        [ROOT / "bindings" / "java" / "jdk"], capture_output=True, text=True, check=False
    )
    if found.returncode != 0 or not JAR.is_file():
        pytest.skip(f"the Java library is not built: {found.stderr.strip()}")
    return [
        pathlib.Path(found.stdout.strip()) / "bin" / "java",
        "--enable-native-access=ALL-UNNAMED",
        f"-Dfarcall.library={BUILT / 'libfarcall.so.1'}",
        "-cp",
        JAR,
    ]


def r_library():
    """The folder of R's package, which `scripts/setup r` makes possible."""
    if shutil.which("R") is None:
        subprocess.run([ROOT / "scripts" / "setup", "r"], check=False, timeout=600)
    if shutil.which("R") is None:
        pytest.skip("R is missing: `scripts/setup r` installs it")
    library = BUILT / "r"
    source = ROOT / "bindings" / "r" / "farcall"
    with installation(library, source) as is_due:
        if is_due:
            words = ["R", "CMD", "INSTALL", "--no-test-load", f"--library={library}", source]
            ran = run(*words, timeout=300, **library_environment())
            assert ran.returncode == 0, ran.stderr
    return library


@contextlib.contextmanager
def installation(home, package):
    """Whether a package is still to be installed in a folder. Other processes wait meanwhile."""
    home.mkdir(exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = {".o", ".so"}
        files = [path for path in package.rglob("*") if path.is_file() and path.suffix not in built]
        stamp = home / "installed"
        newest = max(path.stat().st_mtime for path in [*files, BUILT / "libfarcall.so.1"])
        is_due = not stamp.exists() or stamp.stat().st_mtime < newest
        yield is_due
        if is_due:
            stamp.touch()


def library_environment():
    """The variables with which the packages of R and Octave find the library."""
    return {
        "FARCALL_CFLAGS": f"-I{INCLUDE}",
        "FARCALL_LIBS": f"-L{BUILT} -lfarcall -Wl,-rpath,{BUILT}",
    }


def octave():
    """The command that runs Octave with the package of Octave, which `scripts/setup octave` makes
    possible."""
    if shutil.which("mkoctfile") is None or shutil.which("octave-cli") is None:
        subprocess.run([ROOT / "scripts" / "setup", "octave"], check=False, timeout=600)
    if shutil.which("mkoctfile") is None:
        pytest.skip("mkoctfile is missing: `scripts/setup octave` installs it")
    home = BUILT / "octave"
    words = ["env", f"HOME={home}", "octave-cli", "--norc", "--no-history"]
    package = ROOT / "bindings" / "octave" / "farcall"
    with installation(home, package) as is_due:
        if is_due:
            archive = home / "farcall.tar.gz"
            with tarfile.open(archive, "w:gz") as packed:
                packed.add(package, "farcall-0.1.0")
            install = f"pkg install -local -verbose {archive}"
            ran = run(*words, "--eval", install, timeout=300, **library_environment())
            assert ran.returncode == 0, ran.stdout + ran.stderr
    return words


def command(source, folder):
    """The command that runs a source file, compiled in `folder` if necessary."""
    program = folder / source.stem
    match source.suffix:
        case ".c":
            return [compile_c(source, program)]
        case ".cpp":
            if shutil.which("c++") is None:
                pytest.skip("no C++ compiler")
            return [compile_c(source, program, compiler=("c++", "-std=c++20"))]
        case ".f90":
            return [compile_fortran(source, program)]
        case ".java":
            return [*java(), source]
        case _:
            return [*interpreter(source.suffix), source]


def interpreter(suffix):
    """The command that runs a program in a language without a compiler."""
    match suffix:
        case ".py":
            return [sys.executable]
        case ".R":
            return ["env", f"R_LIBS={r_library()}", "Rscript", "--vanilla"]
        case ".m":
            return octave()
    raise ValueError(suffix)


def run(*command, timeout=60, cwd=None, pass_fds=(), **environment):
    """Runs a program without inherited server settings, and returns its result."""
    names = ("FARCALL_SERVER", "NINF_SERVER", "NINF_SERVER_PORT", "FARCALL_CONFIG")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
        pass_fds=pass_fds,
        env=kept | environment,
    )
