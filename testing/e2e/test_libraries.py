"""Every routine through the server, against the same shared library called here."""

import lapack_cases
import numpy as np
import pytest


@pytest.mark.parametrize("library", ["blas", "lapack", "fft"])
def test_every_routine_agrees_bit_for_bit(server, library):
    count = 0
    for case in lapack_cases.cases(library):
        arguments = case.arguments()
        server.call(case.qualified_name, **arguments)
        case.compare(arguments, case.reference())
        count += 1
    assert count > 10


def test_without_a_transform_there_are_no_numbers_of_an_earlier_call(server):
    x = np.ones((2, 4), np.complex128)
    assert np.isfinite(server.call("fft/zfft", n=4, howmany=2, sign=1, x=x).y).all()
    found = server.call("fft/zfft", n=4, howmany=2, sign=3, x=x)
    assert found.info == -3
    assert np.isnan(found.y).all()
