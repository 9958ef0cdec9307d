"""Arguments that BLAS and LAPACK refuse by their error handler, which prints a line locally."""

import re

import farcall
import numpy as np
import pytest


def test_blas_does_not_fail_in_silence(library_server):
    server = library_server.connect()
    x = np.ones(3)
    text = r"blas/dgemv was refused: argument 1 \(`trans`\) of DGEMV has an illegal value"
    with pytest.raises(farcall.ArgumentError, match=text):
        server.call("dgemv", "Q", 3, 3, 1.0, np.eye(3), 3, x, 1, 0.0, x.copy(), 1)


def test_what_info_tells_is_a_result(library_server):
    server = library_server.connect()
    a = np.zeros((2, 2), order="F")
    result = server.function("dgesv")(n=2, nrhs=1, a=a, lda=2, b=np.ones((2, 1)), ldb=2)
    assert result.info == 1
    assert server.function("dpotrf")(uplo="X", n=2, a=a, lda=2).info == -1


def test_what_info_does_not_tell_is_an_error(library_server):
    # OpenBLAS leaves `info` as it was.
    server = library_server.connect()
    text = r"dgetrs was refused: argument 1 \(`trans`\) of DGETRS has an illegal value"
    a, pivots = np.eye(2, order="F"), np.array([1, 2], np.int32)
    try:
        result = server.call("dgetrs", "Q", 2, 1, a, 2, pivots, np.ones(2), 2)
    except farcall.ArgumentError as error:
        assert re.search(text, str(error))
    else:
        assert result.info == -1


def test_letters_of_openblas_have_the_sizes_that_it_takes(library_server):
    server = library_server.connect()
    rng = np.random.default_rng(3)
    for prefix, letters in ("d", "R"), ("z", "ROS"):
        a = np.asfortranarray(rng.random((2, 5)).astype("d" if prefix == "d" else "D"))
        x, y = np.ones(5, a.dtype), np.zeros(2, a.dtype)
        for letter in letters:
            try:
                server.call(f"{prefix}gemv", letter, 2, 5, 1.0, a, 2, x, 1, 0.0, y, 1)
            except farcall.ArgumentError as error:
                assert "illegal value" in str(error)
            else:
                assert np.allclose(y, a @ x), letter
