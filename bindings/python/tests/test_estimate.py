"""What a call would take, which library answers, and handles in other processes."""

import concurrent.futures
import multiprocessing
import pickle

import farcall
import numpy as np
import pytest
from servers import LIBRARIES


def solve(function, n=300):
    rng = np.random.default_rng(1)
    a = np.asfortranarray(rng.random((n, n)))
    return function(n=n, nrhs=1, a=a, lda=n, b=np.ones(n), ldb=n)


@pytest.fixture
def dgesv(library_server):
    return library_server.connect().function("lapack/dgesv")


def test_bytes_and_operations_are_known_before_anything_is_sent(dgesv):
    plan = dgesv.estimate(n=500, nrhs=1, lda=500, ldb=500)
    assert plan.sent_bytes == 8 * (500 * 500 + 500)
    assert plan.returned_bytes == plan.sent_bytes + 4 * 501
    assert plan.memory_bytes >= plan.returned_bytes
    assert plan.operations == pytest.approx(2 / 3 * 500**3 + 2 * 500**2)
    assert 0 < plan.latency < 1
    with pytest.raises(farcall.ArgumentError, match="`lda`"):
        dgesv.estimate(n=500, nrhs=1, ldb=500)


def test_the_time_is_learned_from_calls(start):
    function = start(LIBRARIES / "lapack.idl").connect().function("dgesv")
    plan = function.estimate(n=300, nrhs=1, lda=300, ldb=300)
    assert plan.exec is None and plan.total is None
    assert "not known yet" in repr(plan)
    times = []
    for _ in range(5):
        solve(function)
        times.append(function.times.exec)
    plan = function.estimate(n=300, nrhs=1, lda=300, ldb=300)
    assert min(times) / 20 < plan.exec < 20 * max(times)
    assert plan.factor >= 1
    assert plan.total >= plan.exec
    # As large as a problem is that gets one processor element, too.
    larger = function.estimate(n=1100, nrhs=1, lda=1100, ldb=1100)
    grown = plan.exec * larger.operations / plan.operations
    assert larger.exec == pytest.approx(grown, rel=1e-3)


def test_rates_are_learned_from_transfers_over_the_network(start):
    server = start(LIBRARIES / "lapack.idl")
    function = server.connect(same_host=False).function("dgesv")
    assert function.estimate(n=1000, nrhs=1, lda=1000, ldb=1000).send is None
    solve(function, 1000)
    again = server.connect(same_host=False).function("dgesv")
    plan = again.estimate(n=1000, nrhs=1, lda=1000, ldb=1000)
    assert plan.send == pytest.approx(function.times.send, rel=0.01)
    assert plan.recv == pytest.approx(function.times.recv, rel=0.01)


def test_elements_that_decide_sizes_are_asked_for(start, tmp_path):
    path = tmp_path / "sizes.idl"
    path.write_text(
        'Module m;\nLibrary "libm.so.6";\n'
        'Define f(IN int n, IN int s[n], OUT double y[s[0]]) Calls "C" cos(n);\n'
    )
    function = start(path).connect().function("f")
    assert function.estimate(n=2, s=[10, 20]).returned_bytes == 80
    with pytest.raises(farcall.ArgumentError, match="`s`"):
        function.estimate(n=2)


def test_the_library_is_named_with_version_and_kernel(dgesv):
    assert dgesv.library.startswith("libopenblas.so.0: OpenBLAS 0.")
    assert ", kernel " in dgesv.library


def test_handles_are_pickled_and_share_a_connection(dgesv, library_server):
    one, other = (pickle.loads(pickle.dumps(dgesv)) for _ in range(2))
    assert one.name == dgesv.name
    assert one is other
    assert solve(one).info == 0
    result = solve(one)
    copy = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(copy.b, result.b)
    assert type(copy) is type(result)
    server = pickle.loads(pickle.dumps(library_server.connect()))
    assert server.address == library_server.address


def test_handles_work_in_other_processes(dgesv):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        results = list(pool.map(solve, [dgesv] * 4, timeout=60))
    expected = solve(dgesv).b
    for result in results:
        np.testing.assert_array_equal(result.b, expected)


def test_each_result_tells_the_library_that_has_computed_it(library_server):
    function = library_server.connect().function("lapack/dgesv")
    told = function.library
    assert "OpenBLAS" in told
    solve(function)
    assert function.library == told
    a = np.asfortranarray(np.eye(2))
    future = function.call_async(n=2, nrhs=1, a=a, lda=2, b=np.ones(2), ldb=2)
    assert future.library is None
    future.result(timeout=30)
    assert future.library == told
    with farcall.progress():
        solve(function)
    assert function.library == told
