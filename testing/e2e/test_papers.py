"""The functions of the first Ninf paper: Linpack and EP."""

import farcall
import numpy as np
import pytest
from servers import LIBRARIES, ServerProcess


@pytest.fixture(scope="module")
def papers():
    process = ServerProcess(LIBRARIES / "linpack.idl", LIBRARIES / "ep.idl")
    yield farcall.connect(process.address)
    process.stop()


@pytest.mark.parametrize("name", ["linpack", "unblocked"])
def test_linpack_solves_and_leaves_the_matrix_alone(papers, name):
    n = 200
    rng = np.random.default_rng(1)
    a = np.asfortranarray(rng.random((n, n)))
    kept, x = a.copy(), rng.random(n)
    b = a @ x
    result = papers.function(f"linpack/{name}")(n=n, a=a, b=b)
    assert result.info == 0
    assert np.array_equal(a, kept)
    assert np.allclose(b, x, rtol=1e-8)
    # The bytes that travel are those that the paper counts.
    plan = papers.function(f"linpack/{name}").estimate(n=n)
    assert (plan.sent_bytes, plan.returned_bytes) == (8 * n * n + 8 * n, 12 * n + 4)


@pytest.mark.parametrize("name", ["linpack", "unblocked"])
def test_a_singular_matrix_is_told(papers, name):
    a = np.asfortranarray(np.ones((3, 3)))
    assert papers.function(f"linpack/{name}")(n=3, a=a, b=np.ones(3)).info > 0


def test_ep_gives_the_published_sums(papers):
    """The verification values of the NAS parallel benchmarks, class S."""
    sums, counts = np.empty(2), np.empty(10)
    papers.call("ep/ep", 24, sums, counts)
    assert sums == pytest.approx([-3.247834652034740e3, -6.958407078382297e3], rel=1e-8)
    assert counts.sum() == 13176389
    assert counts[0] > counts[1] > counts[2] > 0
