"""Fourier transforms by FFTW, through libraries/fft_shim.c."""

from .description import Routine, split_params

HEADER = """
/* Fourier transforms by FFTW. Written by libraries/generate.py: change libraries/routines/fft.py.

   sign -1 is the forward transform, 1 the backward one; neither is scaled. Real transforms have the
   n / 2 + 1 first complex coefficients. info is 0, -i where argument i is wrong, or 1 where FFTW
   makes no plan; without a transform, y is NaN. A cost is 5 n log2(n) operations for a complex
   transform, half for a real one; log2 is taken as 10. */
Module fft;
Library "libfarcall_fft.so";"""

HALF = "(n / 2 + 1)"
SIZES = [dict(n=16, howmany=3), dict(n=15, howmany=1)]
PLANES = [dict(m=6, n=8), dict(m=5, n=7)]


def signed(cases):
    return [dict(case, sign=sign) for case in cases for sign in (-1, 1)]


def routines():
    for p, real, element in (("c", "s", "scomplex"), ("z", "d", "dcomplex")):
        part = "float" if p == "c" else "double"
        info = "OUT int *info"

        def transform(name, params, description, cost, cases):
            return Routine(name, split_params(f"{params}, {info}"), description, cost, cases,
                           convention="C")

        both = f"IN {element} x[howmany][n], OUT {element} y[howmany][n]"
        yield transform(f"{p}fft", f"IN int n, IN int howmany, IN int sign, {both}",
                        "howmany complex transforms of length n", "50 * n * howmany",
                        signed(SIZES))
        both = f"IN {element} x[m][n], OUT {element} y[m][n]"
        yield transform(f"{p}fft2", f"IN int m, IN int n, IN int sign, {both}",
                        "One complex transform in two dimensions", "100 * m * n", signed(PLANES))
        both = f"IN {element} x[total], OUT {element} y[total]"
        yield transform(f"{p}fftn",
                        f"IN int rank, IN int dims[rank], IN long total, IN int sign, {both}",
                        "One complex transform in rank dimensions, the last varying fastest; "
                        "total is the product of dims", "100 * total",
                        signed([dict(rank=3, total=6)]))
        yield transform(f"{real}fft",
                        f"IN int n, IN int howmany, IN {part} x[howmany][n], "
                        f"OUT {element} y[howmany][{HALF}]",
                        "howmany real transforms of length n", "25 * n * howmany", SIZES)
        yield transform(f"{real}ifft",
                        f"IN int n, IN int howmany, IN {element} x[howmany][{HALF}], "
                        f"OUT {part} y[howmany][n]",
                        "howmany backward transforms of length n to real values",
                        "25 * n * howmany", SIZES)
        yield transform(f"{real}fft2",
                        f"IN int m, IN int n, IN {part} x[m][n], OUT {element} y[m][{HALF}]",
                        "One real transform in two dimensions", "50 * m * n", PLANES)
        yield transform(f"{real}ifft2",
                        f"IN int m, IN int n, IN {element} x[m][{HALF}], OUT {part} y[m][n]",
                        "One backward transform in two dimensions to real values", "50 * m * n",
                        PLANES)
