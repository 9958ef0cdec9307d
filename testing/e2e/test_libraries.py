"""Every routine through the server, against the same shared library called here."""

import lapack_cases
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
