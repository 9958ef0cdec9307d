"""Arguments that BLAS and LAPACK refuse by their error handler."""

import farcall
import numpy as np
import pytest


@pytest.mark.parametrize("same_host", [True, False])
def test_the_text_reaches_the_caller(library_server, same_host):
    server = library_server.connect(same_host=same_host)
    # A leading dimension that is too small for LAPACK, in arrays that are as large as declared.
    potrf = server.function("lapack/dpotrf")
    a = np.asfortranarray(np.eye(3))
    with pytest.raises(farcall.ArgumentError) as error:
        potrf(uplo="X", n=3, a=a, lda=3)
    text = "argument 1 (`uplo`) of DPOTRF has an illegal value"
    assert str(error.value).endswith(f"lapack/dpotrf was refused: {text}")
    assert error.value.fault == "caller"
    assert potrf(uplo="U", n=3, a=a, lda=3).info == 0, "the next call is another one"


def test_blas_does_not_fail_in_silence(library_server):
    server = library_server.connect()
    x = np.ones(3)
    with pytest.raises(farcall.ArgumentError, match=r"of DGEMV.* has an illegal value"):
        server.call("dgemv", "Q", 3, 3, 1.0, np.eye(3), 3, x, 1, 0.0, x.copy(), 1)


def test_a_singular_matrix_is_a_result(library_server):
    server = library_server.connect()
    a = np.zeros((2, 2), order="F")
    result = server.function("dgesv")(n=2, nrhs=1, a=a, lda=2, b=np.ones((2, 1)), ldb=2)
    assert result.info == 1
