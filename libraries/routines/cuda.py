"""cuBLAS, cuSOLVER and cuFFT, through libraries/cuda_shim.c."""

from .description import PRECISIONS, Routine, split_params

HEADER = """
/* Dense matrices and Fourier transforms on a GPU, by cuBLAS, cuSOLVER and cuFFT. Written by
   libraries/generate.py: change libraries/routines/cuda.py.

   Matrices are stored by rows. info is 0, or i > 0 as in LAPACK: a pivot or minor i is singular, or
   i values have not converged; the results are not set then. The sign of a transform is -1 for
   forward and 1 for backward; neither is scaled. */
Module cuda;
Library "libfarcall_cuda.so";"""

METHODS = """
DefClass Device "Arrays in the memory of a GPU, each with a number"
{{
{typed}
    DefMethod drop(IN int count, IN long ids[count])
        "Release the memory of arrays"
        Gpus 1
        Calls "C" farcall_cuda_drop(count, ids);
    DefMethod memory(OUT long *free, OUT long *all)
        "Bytes of the memory of the GPU that are free, and all"
        Gpus 1
        Calls "C" farcall_cuda_memory(free, all);
    DefMethod gemm(
        IN char transa, IN char transb, IN dcomplex alpha, IN long a, IN long b,
        IN dcomplex beta, IN long c, OUT long *product)
        "C = alpha op(A) op(B) + beta C in array c, or in a new array if c is 0"
        Gpus 1
        Calls "C" product = farcall_cuda_device_gemm(
            transa, transb, alpha, a, b, beta, c);
    DefMethod gesv(IN long a, IN long b, OUT long *x, OUT int *info)
        "Solve A X = B in a new array; each row of b and x is a right-hand side and its solution"
        Gpus 1
        Calls "C" info = farcall_cuda_device_gesv(a, b, x);
    DefMethod posv(IN long a, IN long b, OUT long *x, OUT int *info)
        "The same for a positive definite matrix, of which the lower triangle is read"
        Gpus 1
        Calls "C" info = farcall_cuda_device_posv(a, b, x);
    DefMethod syevd(IN long a, OUT long *w, OUT long *v, OUT int *info)
        "Eigenvalues of a symmetric or hermitian matrix, and the vectors in the columns of v"
        Gpus 1
        Calls "C" info = farcall_cuda_device_syevd(a, w, v);
    DefMethod gesvd(IN long a, OUT long *u, OUT long *s, OUT long *vt, OUT int *info)
        "Singular values, and the first min(m, n) vectors"
        Gpus 1
        Calls "C" info = farcall_cuda_device_gesvd(a, u, s, vt);
    DefMethod fft(IN int rank, IN int dims[rank], IN int sign, IN long x, OUT long *y)
        "Transforms in the last rank dimensions of a complex array"
        Gpus 1
        Calls "C" y = farcall_cuda_device_fft(rank, dims, sign, x);
}}"""

PUT_AND_GET = """\
    DefMethod {p}put(IN int m, IN int n, IN {T} a[m][n], OUT long *id)
        "Copy a matrix to the device"
        Gpus 1
        Calls "C" id = farcall_cuda_put('{p}', m, n, a);
    DefMethod {p}get(IN long id, IN int m, IN int n, OUT {T} a[m][n])
        "Copy an array of this shape and type from the device"
        Gpus 1
        Calls "C" farcall_cuda_get('{p}', id, m, n, a);"""

FOOTER = METHODS.format(
    typed="\n".join(
        PUT_AND_GET.format(p=p, T=element) for p, (element, _) in PRECISIONS.items()
    )
)

LEAST = "min(m, n)"


def functions(p):
    """Name, parameters, description and operations of a real call, in one precision."""
    is_complex = p in "cz"
    scalar = "dcomplex" if is_complex else "double"
    op_a, op_b = (f"{name} == 'N' || {name} == 'n'" for name in ("transa", "transb"))
    yield ("gemm", "gemm" if is_complex else "gemm_real",
           f"IN char transa, IN char transb, IN int m, IN int n, IN int k, IN {scalar} alpha, "
           f"IN {{T}} a[{op_a} ? m : k][{op_a} ? k : m], "
           f"IN {{T}} b[{op_b} ? k : n][{op_b} ? n : k], IN {scalar} beta, INOUT {{T}} c[m][n]",
           "C = alpha op(A) op(B) + beta C; op is N, T or C (conjugate transpose)",
           "2 * m * n * k", None)
    info = "OUT int *info"
    solve = "IN int n, IN int nrhs, IN {T} a[n][n], IN {T} b[nrhs][n], OUT {T} x[nrhs][n]"
    yield ("gesv", "gesv", f"{solve}, {info}",
           "Solve A X = B; each row of b and x is a right-hand side and its solution",
           "2 / 3 * n^3 + 2 * n^2 * nrhs", "info")
    yield ("posv", "posv", f"{solve}, {info}",
           "The same for a positive definite matrix, of which the lower triangle is read",
           "1 / 3 * n^3 + 2 * n^2 * nrhs", "info")
    kind = "heevd" if is_complex else "syevd"
    yield (kind, "syevd", f"IN int n, IN {{T}} a[n][n], OUT {{R}} w[n], OUT {{T}} v[n][n], {info}",
           "Eigenvalues, ascending, of a hermitian matrix, and the vectors in the columns of v"
           if is_complex else
           "Eigenvalues, ascending, of a symmetric matrix, and the vectors in the columns of v",
           "9 * n^3", "info")
    yield ("gesvd", "gesvd", f"IN int m, IN int n, IN {{T}} a[m][n], OUT {{T}} u[m][{LEAST}], "
           f"OUT {{R}} s[{LEAST}], OUT {{T}} vt[{LEAST}][n], {info}",
           "Singular values, descending, and the first min(m, n) vectors",
           f"6 * max(m, n) * {LEAST}^2 + 20 * {LEAST}^3", "info")
    if is_complex:
        yield ("fft", "fft",
               "IN int rank, IN int dims[rank], IN int howmany, IN long total, IN int sign, "
               "IN {T} x[howmany][total], OUT {T} y[howmany][total]",
               "howmany transforms in rank dimensions (1 to 3), the last varying fastest; total "
               "is the product of dims", "25 / 2 * total * howmany", None)


def routines():
    """All functions in the order of LAPACK's precisions."""
    for p, (element, real) in PRECISIONS.items():
        for name, function, params, description, cost, value in functions(p):
            filled = split_params(params.replace("{T}", element).replace("{R}", real))
            first = filled[0].split("[")[0].split()[-1]
            yield Routine(
                name=p + name,
                params=filled,
                description=description,
                cost=f"4 * ({cost})" if p in "cz" else cost,
                cases=[],
                value=value,
                convention="C",
                gpus=1,
                function=f"farcall_cuda_{function}",
                constants={first: [f"'{p}'"]},
            )
