"""`farcall.offload`: NumPy and SciPy from their packages, with their LAPACK at a server."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from programs import dropin
from servers import FARCALL

SCRIPT = """
import farcall.offload
farcall.offload.enable(always=True, stats=True)
import numpy as np
a = np.random.default_rng(1).standard_normal((50, 50))
assert np.allclose(a @ np.linalg.solve(a, a.T), a.T)
w, v = np.linalg.eigh(a + a.T)
assert np.allclose((v * w) @ v.T, a + a.T)
try:
    np.linalg.solve(np.zeros((4, 4)), np.ones(4))
except np.linalg.LinAlgError as error:
    print(error)
"""


def script(text, **variables):
    words = [sys.executable, "-c", text]
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    return subprocess.run(
        words, capture_output=True, text=True, timeout=120, env=environment, check=False
    )


def remote(ran):
    """The number of remote calls, by routine."""
    rows = [line.split() for line in ran.stderr.splitlines()]
    return {row[0]: int(row[2]) for row in rows if len(row) >= 9 and row[1].isdigit()}


def test_numpy_computes_at_the_server(library_server):
    variables = {"FARCALL_OFFLOAD_DROPIN": dropin(), "FARCALL_SERVER": library_server.address}
    ran = script(SCRIPT, **variables)
    assert (ran.returncode, ran.stdout) == (0, "Singular matrix\n"), ran.stderr
    counts = remote(ran)
    assert counts["dgesv"] == 2
    assert counts["dsyevd"] == 1
    assert counts["dgemm"] == 2


def test_scipy_computes_at_the_server(library_server):
    pytest.importorskip("scipy")
    text = """
import numpy as np, scipy.linalg
a = np.random.default_rng(1).standard_normal((50, 50)) + 50 * np.eye(50)
factors = scipy.linalg.lu_factor(a)
assert np.allclose(a @ scipy.linalg.lu_solve(factors, np.ones(50)), 1)
"""
    words = [FARCALL, "offload", "--always", "--stats", "--library", dropin()]
    words += ["--server", library_server.address, "--", sys.executable, "-c", text]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    assert remote(ran)["dgetrf"] == 1
    assert remote(ran)["dgetrs"] == 1


def test_the_statistics_say_why_calls_are_refused():
    words = [FARCALL, "offload", "--always", "--stats", "--library", dropin()]
    words += ["--server", "farcall://127.0.0.1:1", "--", sys.executable, "-c"]
    words.append("import numpy as np; np.linalg.solve(np.eye(3), np.ones(3))")
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "the last failure at the server: cannot connect to farcall://127.0.0.1:1" in ran.stderr


ALIASED = """
import ctypes
import numpy as np

def gemm(a, b, c, n, k, transa=b"N"):
    word = lambda value: ctypes.byref(ctypes.c_int(value))
    real = lambda value: ctypes.byref(ctypes.c_double(value))
    at = lambda array: ctypes.c_void_p(array.ctypes.data)
    ld = lambda array: word(array.strides[1] // 8)
    one = ctypes.c_size_t(1)
    ctypes.CDLL(None).dgemm_(transa, b"N", word(n), word(n), word(k), real(1.0), at(a), ld(a),
                             at(b), ld(b), real(1.0), at(c), ld(c), one, one)

whole = np.asfortranarray(np.random.default_rng(2).random((40, 40)))
parts = [whole[i : i + 20, j : j + 20] for i in (0, 20) for j in (0, 20)]
a, b, c, d = parts
expected = d + c @ b
gemm(c, b, d, 20, 20)  # blocks of one matrix, which lie between each other
assert np.allclose(d, expected)
gemm(a, b, a, 20, 20)  # it also reads what it writes
gemm(a, b, whole[1:21, :20], 20, 20)
gemm(a, b, d, 20, 20, b"R")  # no letter of BLAS
"""


def test_calls_that_libraries_may_take_otherwise_stay_here(library_server):
    words = [FARCALL, "offload", "--always", "--stats", "--library", dropin()]
    words += ["--server", library_server.address, "--", sys.executable, "-c", ALIASED]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    (row,) = (line.split() for line in ran.stderr.splitlines() if line.startswith("dgemm "))
    # `c @ b` goes, too.
    assert row[2:4] == ["2", "3"], row


def test_names_that_no_library_has_are_told():
    words = [FARCALL, "offload", "--library", dropin(), "--only"]
    for names, status in ("dgesv, BLAS,", 0), ("dgemm,dgesvv", 2):
        ran = subprocess.run(
            [*words, names, "--", "true"], capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == status, ran.stderr
    assert "no routine or module `dgesvv`; did you mean `dgesv`?" in ran.stderr
    enable = "import farcall.offload; farcall.offload.enable(only={!r})"
    for names, status in ("lapack,DGEMM", 0), (["dgesvv"], 1):
        ran = script(enable.format(names), FARCALL_OFFLOAD_DROPIN=dropin())
        assert ran.returncode == status, ran.stderr
    assert "no routine or module `dgesvv`; did you mean `dgesv`?" in ran.stderr
    ran = script(enable.format([]), FARCALL_OFFLOAD_DROPIN=dropin())
    assert ran.returncode == 1 and "only: the list is empty" in ran.stderr


@pytest.mark.parametrize(("names", "told"), [("dgesv,dgesvv", "`dgesvv`"), ("LAPACK", "")])
def test_names_in_the_environment_that_no_library_has_are_told(names, told):
    text = "import ctypes; ctypes.CDLL('libopenblas.so.0')"
    ran = script(text, FARCALL_OFFLOAD_ONLY=names, LD_PRELOAD=dropin())
    assert ran.returncode == 0, ran.stderr
    expected = f"no drop-in library has a routine or module {told}"
    assert expected in ran.stderr if told else ran.stderr == ""


@pytest.mark.parametrize(
    ("mode", "told"), [("on", True), ("OFF", True), ("", False), ("always", False)]
)
def test_a_mode_in_the_environment_that_there_is_not_is_told(mode, told):
    text = "import ctypes; ctypes.CDLL('libopenblas.so.0')"
    ran = script(text, FARCALL_OFFLOAD=mode, LD_PRELOAD=dropin())
    assert ran.returncode == 0, ran.stderr
    expected = f"there is no `{mode}`, so that `auto` was used; write auto, always or off"
    assert (expected in ran.stderr) if told else ran.stderr == ""


REPORT = """
import threadpoolctl
import numpy as np
assert np.allclose(np.linalg.solve(np.eye(3), np.ones(3)), 1)
entries = [one for one in threadpoolctl.threadpool_info() if one["internal_api"] == "farcall"]
(entry,) = entries
print(entry["user_api"], entry["num_threads"], entry["server"])
with threadpoolctl.threadpool_limits(1, user_api="blas"):
    assert np.allclose(np.linalg.solve(np.eye(3), np.ones(3)), 1)
"""


def test_threadpoolctl_reports_the_server(library_server):
    pytest.importorskip("threadpoolctl")
    status = json.loads(
        subprocess.check_output([FARCALL, "status", "--json", library_server.address], text=True)
    )
    expected = f"blas {status['pes']} {library_server.address}\n"
    variables = {"FARCALL_OFFLOAD_DROPIN": dropin(), "FARCALL_SERVER": library_server.address}
    enabled = "import farcall.offload\nfarcall.offload.enable(always=True)\n"
    ran = script(enabled + REPORT, **variables)
    assert (ran.returncode, ran.stdout) == (0, expected), ran.stderr
    words = [FARCALL, "offload", "--always", "--library", dropin()]
    words += ["--server", library_server.address, "--", sys.executable, "-c"]
    words.append("import farcall.offload\n" + REPORT)
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, expected), ran.stderr


def test_threadpoolctl_reports_no_threads_without_a_server():
    pytest.importorskip("threadpoolctl")
    variables = {"FARCALL_OFFLOAD_DROPIN": dropin(), "FARCALL_SERVER": "farcall://127.0.0.1:1"}
    enabled = "import farcall.offload\nfarcall.offload.enable(always=True)\n"
    ran = script(enabled + REPORT, **variables)
    assert (ran.returncode, ran.stdout) == (0, "blas None farcall://127.0.0.1:1\n"), ran.stderr


def test_it_must_come_before_numpy():
    ran = script("import numpy, farcall.offload; farcall.offload.enable()")
    assert ran.returncode != 0
    assert "NumPy is imported and has chosen its LAPACK; call this first" in ran.stderr


def test_a_wrong_address_is_told():
    for address in ["host:port", "farcall://127.0.0.1:1,ftp://host"]:
        ran = script(f"import farcall.offload; farcall.offload.enable({address!r})")
        assert ran.returncode != 0
        assert "ArgumentError" in ran.stderr


def test_a_missing_library_is_named():
    ran = script(
        "import farcall.offload; farcall.offload.enable()", FARCALL_OFFLOAD_DROPIN="/none.so"
    )
    assert ran.returncode != 0
    assert "farcall.offload.enable: /none.so: cannot open" in ran.stderr


def test_a_missing_client_library_is_an_error_that_names_the_remedy(tmp_path):
    library = tmp_path / "alone" / "libfarcall_lapack.so"
    library.parent.mkdir()
    shutil.copy(dropin(), library)
    enable = "import farcall.offload; farcall.offload.enable()"
    ran = script(enable, FARCALL_OFFLOAD_DROPIN=library)
    assert ran.returncode == 1, ran.stderr
    remedy = f"put libfarcall.so.1 beside {library} or into the folder above"
    assert "farcall.offload.enable: libfarcall.so.1: cannot open" in ran.stderr
    assert remedy in ran.stderr
