"""Arguments that BLAS and LAPACK refuse by their error handler, which prints a line locally."""

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
