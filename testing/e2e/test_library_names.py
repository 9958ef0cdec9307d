"""`farcall library`, and servers that are started with names of libraries."""

import os
import subprocess
import sys

import numpy as np
from servers import FARCALL, ServerProcess


def farcall(*words, folder, cwd=None):
    """Runs the command for a user whose own libraries are in a folder."""
    environment = os.environ | {"XDG_DATA_HOME": str(folder), "FARCALL_PYTHON": sys.executable}
    return subprocess.run(
        [FARCALL, *words], capture_output=True, text=True, check=False, env=environment, cwd=cwd
    )


def test_names_are_listed_shown_added_and_served(tmp_path):
    listed = farcall("library", "list", folder=tmp_path)
    assert listed.returncode == 0, listed.stderr
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert {"blas", "fft", "lapack", "scalapack"} <= set(names)
    assert "heat" not in names
    shown = farcall("library", "info", "fftw", folder=tmp_path).stdout
    assert "needs libfarcall_fft.so" in shown
    assert "fft/zfft" in shown

    folder = tmp_path / "work"
    (folder / "deep").mkdir(parents=True)
    (folder / "heat.c").write_text("int twice(int n) { return 2 * n; }")
    library = folder / "deep" / "libheat.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "heat.c"], check=True)
    (folder / "heat.idl").write_text(
        '/* Heat in\n   rods. More. */\nModule heat;\nLibrary "deep/libheat.so";\n'
        'Define twice(IN int n, OUT int *m) "Doubles" Calls "C" m = twice(n);\n'
    )
    added = farcall("library", "add", "heat.idl", folder=tmp_path, cwd=folder)
    assert added.returncode == 0, added.stderr
    assert "heat" in farcall("library", "list", folder=tmp_path).stdout
    assert "Heat in rods (1 function)" in farcall("library", "list", folder=tmp_path).stdout

    environment = {"XDG_DATA_HOME": str(tmp_path)}
    process = ServerProcess("lapack", "fftw", "heat", environment=environment)
    try:
        server = process.connect()
        assert server.call("heat/twice", n=21).m == 42
        x = np.array([[1, 2, 3, 4]], np.complex128)
        y = server.call("fft/zfft", n=4, howmany=1, sign=-1, x=x).y
        np.testing.assert_allclose(y, np.fft.fft(x))
        result = server.call("lapack/dgesv", nrhs=1, a=np.eye(2, order="F"), b=np.ones((2, 1)))
        assert result.info == 0
    finally:
        process.stop()


def test_an_unknown_name_suggests_a_known_one(tmp_path):
    said = farcall("serve", "lapak", "--listen", "127.0.0.1:0", folder=tmp_path)
    assert said.returncode == 2
    assert "there is no library `lapak`; did you mean `lapack`?" in said.stderr
    assert "`./lapak.idl`" in said.stderr
    assert farcall("library", "info", "none", folder=tmp_path).returncode == 2
