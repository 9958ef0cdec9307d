"""Parts that the descriptions of LAPACK's routines share."""

from .description import matrix, routine

MIN, MAX = "min(m, n)", "max(m, n)"
INFO = "OUT int *info"
A = matrix("INOUT", "a", "n", "n", "lda")
A_IN = matrix("IN", "a", "n", "n", "lda")
A_MN = matrix("INOUT", "a", "m", "n", "lda")
B = matrix("INOUT", "b", "n", "nrhs", "ldb")
SQUARE = [dict(n=7, nrhs=3, lda=9, ldb=8), dict(n=4, nrhs=1, lda=4, ldb=4)]
TALL, WIDE = dict(m=8, n=5, lda=9), dict(m=4, n=6, lda=4)
UPLO = [dict(case, uplo=uplo) for case in SQUARE for uplo in "UL"]


def only(cases, *names):
    """The cases with only these scalars."""
    return [{name: case[name] for name in names} for case in cases]


def work(name="work", size="lwork", element="{T}"):
    """Work space of a stated size."""
    return f"WORK {element} {name}[max(1, {size})]"


def both(name, real, other, description, cost, cases, size=None):
    """A routine whose parameters differ in the real and in the complex precisions."""
    yield from routine(name, real, description, cost, cases, "sd", size=size)
    yield from routine(name, other, description, cost, cases, "cz", size=size)


def more(cases, **scalars):
    """The cases with more scalars."""
    return [dict(case, **scalars) for case in cases]


def forms(cases, **choices):
    """The cases with each of the choices: `uplo="UL"` makes two of each."""
    for name, letters in choices.items():
        cases = [dict(case, **{name: letter}) for case in cases for letter in letters]
    return cases
