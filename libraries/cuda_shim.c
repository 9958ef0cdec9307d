/* The functions of libraries/cuda.idl, by cuBLAS, cuSOLVER and cuFFT.

   Arrays of callers are stored by rows. NVIDIA's libraries store matrices by columns, so to them
   the memory of a matrix is its transpose. Each function computes with arrays in the memory of the
   GPU. The plain functions put their arguments there and get the results. The methods of the class
   Device find them there by number. A process that has such an object runs its methods only. */
#include "cuda_runtime.h"
#include <complex.h>
#include <limits.h>

/* ---- Errors ---- */

/* The names of common status codes by library, by the first letters of `what`. */
static const char *status_name(const char *what, int status)
{
    static const char *const missing = "it lacks memory", *const wrong = "an argument is wrong";
    static const char *const broken = "the GPU failed", *const old = "the GPU is too old";
    bool is_blas = !strncmp(what, "cuBLAS", 6), is_solver = !strncmp(what, "cuSOLVER", 8);
    if (status == (is_blas ? 3 : 2))
        return missing;
    if (status == (is_blas ? 7 : is_solver ? 3 : 4))
        return wrong;
    if (status == (is_blas ? 13 : 6))
        return broken;
    return (is_blas && status == 8) || (is_solver && status == 4) ? old : "an internal error";
}

static bool is_done(int status, const char *what)
{
    if (status == 0)
        return true;
    cuda.cudaGetLastError(); /* The next call begins without this error. */
    return fail("%.*s failed: %s (CUDA error %d)", (int)strcspn(what, "("), what,
                cuda.cudaGetErrorString(status), status);
}

static bool is_computed(int status, const char *what)
{
    return status == 0 ||
           fail("%s failed: %s (status %d)", what, status_name(what, status), status);
}

#define CUDA(call) is_done(cuda.call, #call)

/* ---- Arrays on the device ---- */

/* An array, s, d, c or z by its type. A vector is one row. */
typedef struct {
    long id;
    char type;
    int rows, columns;
    void *data;
} array;

static struct {
    handle blas, solver;
    solver_params params;
    array *kept;
    size_t count;
    long last;
} own;

static bool is_complex(char type) { return type == 'c' || type == 'z'; }
static bool is_double(char type) { return type == 'd' || type == 'z'; }
static char real_of(char type) { return is_double(type) ? 'd' : 's'; }
static size_t element(char type) { return (size_t)4 << (is_complex(type) + is_double(type)); }
static int data_type(char type) { return is_double(type) + (is_complex(type) ? 4 : 0); }
static size_t bytes(const array *a) { return (size_t)a->rows * a->columns * element(a->type); }

/* Makes the context of the process on the GPU that it may use. */
static bool start(void)
{
    if (own.params)
        return true;
    int count = 0;
    if (!load_all())
        return false;
    int status = cuda.cudaGetDeviceCount(&count);
    if (status == NO_DEVICE || (status == 0 && count == 0))
        return fail("this process may use no GPU: `farcall status` shows how many the server has, "
                    "and `farcall serve --gpus N` sets it");
    if (status == REFUSED_BY_SYSTEM)
        return fail("CUDA cannot start, because the system refuses something to it (CUDA error "
                    "%d). Look at `dmesg`, or start the server with `--no-sandbox` to see "
                    "whether the walls around functions do it", status);
    return is_done(status, "cudaGetDeviceCount") &&
           is_computed(cuda.cublasCreate_v2(&own.blas), "cuBLAS") &&
           is_computed(cuda.cusolverDnCreate(&own.solver), "cuSOLVER") &&
           is_computed(cuda.cusolverDnCreateParams(&own.params), "cuSOLVER");
}

/* Memory of the device; one byte more, because none is not an address. */
static bool allocate(void **data, size_t size)
{
    size_t free = 0, all = 0;
    *data = NULL;
    int status = cuda.cudaMalloc(data, size + 1);
    if (status != OUT_OF_MEMORY)
        return is_done(status, "cudaMalloc");
    cuda.cudaGetLastError();
    cuda.cudaMemGetInfo(&free, &all);
    return fail("the memory of the GPU is full: %.1f MB are needed, and %.1f MB of %.1f MB are "
                "free. Drop arrays on the device, or call with smaller ones",
                size * 1e-6, free * 1e-6, all * 1e-6);
}

static bool make(array *a, char type, int rows, int columns)
{
    *a = (array){.type = type, .rows = rows, .columns = columns};
    return allocate(&a->data, bytes(a));
}

static void drop(array *a)
{
    if (a->data)
        cuda.cudaFree(a->data);
    a->data = NULL;
}

static bool put(array *a, char type, int rows, int columns, const void *from)
{
    return make(a, type, rows, columns) &&
           CUDA(cudaMemcpy(a->data, from, bytes(a), COPY_TO_DEVICE));
}

static bool get(const array *a, void *to)
{
    return CUDA(cudaMemcpy(to, a->data, bytes(a), COPY_TO_HOST));
}

static bool copy(array *to, const array *from)
{
    return make(to, from->type, from->rows, from->columns) &&
           CUDA(cudaMemcpy(to->data, from->data, bytes(from), COPY_ON_DEVICE));
}

/* The transpose of a matrix. */
static bool transpose(array *to, const array *from)
{
    static const double complex one = 1, zero = 0;
    static const float complex short_one = 1, short_zero = 0;
    int rows = from->rows, columns = from->columns, type = data_type(from->type);
    const void *alpha = is_double(from->type) ? (const void *)&one : &short_one;
    const void *beta = is_double(from->type) ? (const void *)&zero : &short_zero;
    int(*geam) GEAM = type == FLOAT          ? cuda.cublasSgeam
                      : type == DOUBLE       ? cuda.cublasDgeam
                      : type == COMPLEX_FLOAT ? cuda.cublasCgeam
                                             : cuda.cublasZgeam;
    return make(to, from->type, columns, rows) &&
           (rows == 0 || columns == 0 ||
            is_computed(geam(own.blas, TRANSPOSED, AS_IT_IS, rows, columns, alpha, from->data,
                             columns, beta, to->data, rows, to->data, rows), "cuBLAS geam"));
}

/* ---- Functions on arrays of the device ---- */

static int operation(char letter)
{
    switch (letter) {
    case 'N': case 'n': return AS_IT_IS;
    case 'T': case 't': return TRANSPOSED;
    case 'C': case 'c': return CONJUGATED;
    default: return -1;
    }
}

/* C = alpha op(A) op(B) + beta C. By columns, this is the product of the transposes. */
static bool multiply(char transa, char transb, double complex alpha, const array *a,
                     const array *b, double complex beta, array *c)
{
    int of_a = operation(transa), of_b = operation(transb);
    if (of_a < 0 || of_b < 0)
        return fail("gemm: transa and transb are N, T or C, given %c and %c", transa, transb);
    int m = of_a ? a->columns : a->rows, k = of_a ? a->rows : a->columns;
    int n = of_b ? b->rows : b->columns, of_k = of_b ? b->columns : b->rows;
    if (a->type != b->type || (c->data && c->type != a->type))
        return fail("gemm: the arrays have different types, `%c` and `%c`", a->type,
                    a->type != b->type ? b->type : c->type);
    if (k != of_k)
        return fail("gemm: op(a) is %d x %d and op(b) is %d x %d; the columns of the first must "
                    "be the rows of the second", m, k, of_k, n);
    if (c->data && (c->rows != m || c->columns != n))
        return fail("gemm: the product is %d x %d, and c is %d x %d", m, n, c->rows, c->columns);
    if (!is_complex(a->type) && (cimag(alpha) != 0 || cimag(beta) != 0))
        return fail("gemm: the arrays are real, and alpha is %g%+gi and beta is %g%+gi: give real "
                    "factors, or complex arrays", creal(alpha), cimag(alpha), creal(beta),
                    cimag(beta));
    if (!c->data && !make(c, a->type, m, n))
        return false;
    if (m == 0 || n == 0)
        return true;
    float complex short_alpha = alpha, short_beta = beta;
    bool is_long = is_double(a->type);
    int type = data_type(a->type), columns = n > 0 ? n : 1;
    int status = cuda.cublasGemmEx(
        own.blas, of_b, of_a, n, m, k, is_long ? (void *)&alpha : &short_alpha, b->data, type,
        b->columns ? b->columns : 1, a->data, type, a->columns ? a->columns : 1,
        is_long ? (void *)&beta : &short_beta, c->data, type, columns,
        is_long ? COMPUTE_DOUBLE : COMPUTE_FLOAT, -1);
    return is_computed(status, "cuBLAS gemm") && CUDA(cudaDeviceSynchronize());
}

/* Work space of cuSOLVER, on the device and here, and its `info` on the device. */
typedef struct {
    void *device, *host;
    size_t on_device, on_host;
    int *info;
} space;

static bool make_space(space *s)
{
    s->host = malloc(s->on_host + 1);
    return (s->host || fail("%zu bytes of memory are missing at the server", s->on_host)) &&
           allocate(&s->device, s->on_device) && allocate((void **)&s->info, sizeof *s->info);
}

static void drop_space(space *s)
{
    free(s->host);
    if (s->device)
        cuda.cudaFree(s->device);
    if (s->info)
        cuda.cudaFree(s->info);
}

static bool read_info(const space *s, int *info)
{
    return CUDA(cudaMemcpy(info, s->info, sizeof *info, COPY_TO_HOST));
}

static bool is_square(const array *a, const array *b, const char *name)
{
    if (a->rows != a->columns)
        return fail("%s: the matrix is %d x %d, and must be square", name, a->rows, a->columns);
    if (b && (b->columns != a->rows || b->type != a->type))
        return fail("%s: the matrix is %d x %d of type `%c`, and b is %d x %d of type `%c`; each "
                    "row of b is a right-hand side", name, a->rows, a->columns, a->type, b->rows,
                    b->columns, b->type);
    return true;
}

/* Solves A X = B by the LU factors of the transpose, in place of A and of B. */
static bool solve(array *a, array *b, int *info)
{
    int n = a->rows, type = data_type(a->type);
    *info = 0;
    if (!is_square(a, b, "gesv"))
        return false;
    if (n == 0 || b->rows == 0)
        return true;
    space s = {0};
    void *pivots = NULL;
    bool done =
        is_computed(cuda.cusolverDnXgetrf_bufferSize(own.solver, own.params, n, n, type, a->data,
                                                     n, type, &s.on_device, &s.on_host),
                    "cuSOLVER getrf") &&
        make_space(&s) && allocate(&pivots, n * sizeof(int64_t)) &&
        is_computed(cuda.cusolverDnXgetrf(own.solver, own.params, n, n, type, a->data, n, pivots,
                                          type, s.device, s.on_device, s.host, s.on_host, s.info),
                    "cuSOLVER getrf") &&
        read_info(&s, info) &&
        (*info ||
         is_computed(cuda.cusolverDnXgetrs(own.solver, own.params, TRANSPOSED, n, b->rows, type,
                                           a->data, n, pivots, type, b->data, n, s.info),
                     "cuSOLVER getrs")) &&
        CUDA(cudaDeviceSynchronize());
    if (pivots)
        cuda.cudaFree(pivots);
    drop_space(&s);
    return done;
}

/* The same for a positive definite matrix, by its Cholesky factor. */
static bool solve_definite(array *a, array *b, int *info)
{
    int n = a->rows, type = data_type(a->type);
    *info = 0;
    if (!is_square(a, b, "posv"))
        return false;
    if (n == 0 || b->rows == 0)
        return true;
    space s = {0};
    array by_columns = {0};
    bool done =
        transpose(&by_columns, a) &&
        is_computed(cuda.cusolverDnXpotrf_bufferSize(own.solver, own.params, LOWER, n, type,
                                                     by_columns.data, n, type, &s.on_device,
                                                     &s.on_host), "cuSOLVER potrf") &&
        make_space(&s) &&
        is_computed(cuda.cusolverDnXpotrf(own.solver, own.params, LOWER, n, type, by_columns.data,
                                          n, type, s.device, s.on_device, s.host, s.on_host,
                                          s.info), "cuSOLVER potrf") &&
        read_info(&s, info) &&
        (*info ||
         is_computed(cuda.cusolverDnXpotrs(own.solver, own.params, LOWER, n, b->rows, type,
                                           by_columns.data, n, type, b->data, n, s.info),
                     "cuSOLVER potrs")) &&
        CUDA(cudaDeviceSynchronize());
    drop(&by_columns);
    drop_space(&s);
    return done;
}

/* Eigenvalues w, ascending, and the vectors in the columns of v. */
static bool eigen(const array *a, array *w, array *v, int *info)
{
    int n = a->rows, type = data_type(a->type), real = data_type(real_of(a->type));
    *info = 0;
    if (!is_square(a, NULL, "syevd") || !make(w, real_of(a->type), 1, n))
        return false;
    space s = {0};
    array by_columns = {0};
    bool done = transpose(&by_columns, a);
    if (done && n > 0)
        done = is_computed(cuda.cusolverDnXsyevd_bufferSize(
                               own.solver, own.params, WITH_VECTORS, LOWER, n, type,
                               by_columns.data, n, real, w->data, type, &s.on_device, &s.on_host),
                           "cuSOLVER syevd") &&
               make_space(&s) &&
               is_computed(cuda.cusolverDnXsyevd(own.solver, own.params, WITH_VECTORS, LOWER, n,
                                                 type, by_columns.data, n, real, w->data, type,
                                                 s.device, s.on_device, s.host, s.on_host, s.info),
                           "cuSOLVER syevd") &&
               read_info(&s, info);
    done = done && transpose(v, &by_columns) && CUDA(cudaDeviceSynchronize());
    drop(&by_columns);
    drop_space(&s);
    return done;
}

/* A = U S Vt for a matrix by columns with at least as many rows. u and vt are by columns, too; an
   array here has the shape of its transpose. */
static bool singular_by_columns(array *a, array *u, array *w, array *vt, int *info)
{
    int m = a->columns, n = a->rows, type = data_type(a->type);
    int real = data_type(real_of(a->type));
    space s = {0};
    bool done = make(u, a->type, n, m) && make(vt, a->type, n, n);
    if (done && n > 0)
        done = is_computed(cuda.cusolverDnXgesvd_bufferSize(
                               own.solver, own.params, 'S', 'S', m, n, type, a->data, m, real,
                               w->data, type, u->data, m, type, vt->data, n, type, &s.on_device,
                               &s.on_host), "cuSOLVER gesvd") &&
               make_space(&s) &&
               is_computed(cuda.cusolverDnXgesvd(own.solver, own.params, 'S', 'S', m, n, type,
                                                 a->data, m, real, w->data, type, u->data, m,
                                                 type, vt->data, n, type, s.device, s.on_device,
                                                 s.host, s.on_host, s.info), "cuSOLVER gesvd") &&
               read_info(&s, info);
    drop_space(&s);
    return done;
}

/* A = U S Vt with the first min(m, n) vectors. A wide matrix is decomposed as its transpose, which
   its memory is by columns. */
static bool singular(const array *a, array *u, array *w, array *vt, int *info)
{
    int m = a->rows, n = a->columns, least = m < n ? m : n;
    array work = {0}, left = {0}, right = {0};
    *info = 0;
    bool done = make(w, real_of(a->type), 1, least);
    if (m < n)
        done = done && copy(&work, a) && singular_by_columns(&work, vt, w, u, info);
    else
        done = done && transpose(&work, a) &&
               singular_by_columns(&work, &left, w, &right, info) && transpose(u, &left) &&
               transpose(vt, &right);
    done = done && CUDA(cudaDeviceSynchronize());
    drop(&work);
    drop(&left);
    drop(&right);
    return done;
}

/* Transforms in the last `rank` dimensions, as often as the array has elements for. If `rows` is
   not -1, there must be so many of them. */
static bool transform(int rank, const int *dims, int sign, const array *x, int rows, array *y)
{
    long all = (long)x->rows * x->columns, one = 1;
    int plan = 0, sizes[3];
    if (!is_complex(x->type))
        return fail("fft: the array has type `%c`, and must be complex", x->type);
    if (rank < 1 || rank > 3)
        return fail("fft: the rank is %d, and must be 1, 2 or 3", rank);
    if (sign != -1 && sign != 1)
        return fail("fft: the sign is %d, and must be -1 (forward) or 1 (backward)", sign);
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 1 || dims[i] > INT_MAX / one)
            return fail("fft: the dimension %d is out of range", dims[i]);
        one *= sizes[i] = dims[i];
    }
    if (all % one || all / one > INT_MAX)
        return fail("fft: the array has %ld elements, which is no multiple of %ld", all, one);
    if (rows != -1 && all / one != rows)
        return fail("fft: total is %d, and the product of dims is %ld: both must be the elements "
                    "of one transform", x->columns, one);
    if (!make(y, x->type, x->rows, x->columns) || all == 0)
        return y->data != NULL;
    bool is_long = is_double(x->type);
    int status = cuda.cufftPlanMany(&plan, rank, sizes, NULL, 1, one, NULL, 1, one,
                                    is_long ? TRANSFORM_DOUBLE : TRANSFORM_FLOAT, all / one);
    if (!is_computed(status, "cuFFT's plan"))
        return false;
    status = is_long ? cuda.cufftExecZ2Z(plan, x->data, y->data, sign)
                     : cuda.cufftExecC2C(plan, x->data, y->data, sign);
    bool done = is_computed(status, "cuFFT") && CUDA(cudaDeviceSynchronize());
    cuda.cufftDestroy(plan);
    return done;
}

/* ---- Functions on arrays of the caller ---- */

void farcall_cuda_gemm(char type, char transa, char transb, int m, int n, int k,
                       double complex alpha, const void *a, const void *b, double complex beta,
                       void *c)
{
    array on[3] = {0};
    bool ta = operation(transa) > 0, tb = operation(transb) > 0;
    if (start() && put(&on[0], type, ta ? k : m, ta ? m : k, a) &&
        put(&on[1], type, tb ? n : k, tb ? k : n, b) &&
        (beta == 0 ? make(&on[2], type, m, n) : put(&on[2], type, m, n, c)) &&
        multiply(transa, transb, alpha, &on[0], &on[1], beta, &on[2]))
        get(&on[2], c);
    for (int i = 0; i < 3; i++)
        drop(&on[i]);
}

/* The same with real factors. */
void farcall_cuda_gemm_real(char type, char transa, char transb, int m, int n, int k,
                            double alpha, const void *a, const void *b, double beta, void *c)
{
    farcall_cuda_gemm(type, transa, transb, m, n, k, alpha, a, b, beta, c);
}

static int solve_by(bool (*method)(array *, array *, int *), char type, int n, int nrhs,
                    const void *a, const void *b, void *x)
{
    array on[2] = {0};
    int info = 0;
    if (start() && put(&on[0], type, n, n, a) && put(&on[1], type, nrhs, n, b) &&
        method(&on[0], &on[1], &info))
        get(&on[1], x);
    drop(&on[0]);
    drop(&on[1]);
    return info;
}

int farcall_cuda_gesv(char type, int n, int nrhs, const void *a, const void *b, void *x)
{
    return solve_by(solve, type, n, nrhs, a, b, x);
}

int farcall_cuda_posv(char type, int n, int nrhs, const void *a, const void *b, void *x)
{
    return solve_by(solve_definite, type, n, nrhs, a, b, x);
}

int farcall_cuda_syevd(char type, int n, const void *a, void *w, void *v)
{
    array on[3] = {0};
    int info = 0;
    if (start() && put(&on[0], type, n, n, a) && eigen(&on[0], &on[1], &on[2], &info) &&
        get(&on[1], w))
        get(&on[2], v);
    for (int i = 0; i < 3; i++)
        drop(&on[i]);
    return info;
}

int farcall_cuda_gesvd(char type, int m, int n, const void *a, void *u, void *s, void *vt)
{
    array on[4] = {0};
    int info = 0;
    if (start() && put(&on[0], type, m, n, a) &&
        singular(&on[0], &on[1], &on[2], &on[3], &info) && get(&on[1], u) && get(&on[2], s))
        get(&on[3], vt);
    for (int i = 0; i < 4; i++)
        drop(&on[i]);
    return info;
}

void farcall_cuda_fft(char type, int rank, const int *dims, int howmany, long total, int sign,
                      const void *x, void *y)
{
    array on[2] = {0};
    if (total > INT_MAX)
        fail("fft: one transform has %ld elements, and at most 2^31 - 1 are possible", total);
    else if (start() && put(&on[0], type, howmany, total, x) &&
             transform(rank, dims, sign, &on[0], howmany, &on[1]))
        get(&on[1], y);
    drop(&on[0]);
    drop(&on[1]);
}

/* ---- The class Device ---- */

static array *find(long id)
{
    for (size_t i = 0; i < own.count; i++)
        if (own.kept[i].id == id)
            return &own.kept[i];
    fail("there is no array %ld on this device: it was dropped, or another object has it", id);
    return NULL;
}

/* Keeps an array, and returns its number. */
static long keep(array *a)
{
    array *more = realloc(own.kept, (own.count + 1) * sizeof *more);
    if (!more) {
        drop(a);
        return fail("memory is missing at the server");
    }
    own.kept = more;
    a->id = ++own.last;
    own.kept[own.count++] = *a;
    return a->id;
}

/* Keeps the results of a function, or drops them if it has failed. */
static void keep_all(bool done, int count, array *made, long **ids)
{
    for (int i = 0; i < count; i++) {
        *ids[i] = 0;
        if (done)
            *ids[i] = keep(&made[i]);
        else
            drop(&made[i]);
    }
}

long farcall_cuda_put(char type, int rows, int columns, const void *a)
{
    array made = {0};
    long id = 0;
    keep_all(start() && put(&made, type, rows, columns, a), 1, &made, (long *[]){&id});
    return id;
}

void farcall_cuda_get(char type, long id, int rows, int columns, void *to)
{
    array *a = find(id);
    if (!a)
        return;
    if (a->type != type || a->rows != rows || a->columns != columns)
        fail("array %ld is a matrix of %d x %d of type `%c`, not of %d x %d of type `%c`", id,
             a->rows, a->columns, a->type, rows, columns, type);
    else
        get(a, to);
}

void farcall_cuda_drop(int count, const long *ids)
{
    for (int i = 0; i < count; i++) {
        array *a = find(ids[i]);
        if (!a)
            return;
        drop(a);
        *a = own.kept[--own.count];
    }
}

void farcall_cuda_memory(long *free, long *all)
{
    size_t of[2] = {0};
    if (start())
        CUDA(cudaMemGetInfo(&of[0], &of[1]));
    *free = of[0];
    *all = of[1];
}

long farcall_cuda_device_gemm(char transa, char transb, double complex alpha, long a, long b,
                              double complex beta, long c)
{
    array *on_a = find(a), *on_b = on_a ? find(b) : NULL, *on_c = on_b && c ? find(c) : NULL;
    if (!on_b || (c && !on_c))
        return 0;
    array made = {0};
    if (on_c) {
        /* A product in the memory of a factor is undefined: such a factor is copied. */
        bool is_factor = on_c == on_a || on_c == on_b;
        bool done = !is_factor || copy(&made, on_c);
        on_a = on_a == on_c ? &made : on_a;
        on_b = on_b == on_c ? &made : on_b;
        done = done && multiply(transa, transb, alpha, on_a, on_b, beta, on_c);
        drop(&made);
        return done ? c : 0;
    }
    long id = 0;
    bool done = multiply(transa, transb, alpha, on_a, on_b, 0, &made);
    keep_all(done, 1, &made, (long *[]){&id});
    return id;
}

static int device_solve(bool (*method)(array *, array *, int *), long a, long b, long *x)
{
    array *on_a = find(a), *on_b = on_a ? find(b) : NULL, factors = {0}, made = {0};
    int info = 0;
    *x = 0;
    if (!on_b)
        return 0;
    bool done = copy(&factors, on_a) && copy(&made, on_b) && method(&factors, &made, &info);
    drop(&factors);
    keep_all(done, 1, &made, (long *[]){x});
    return info;
}

int farcall_cuda_device_gesv(long a, long b, long *x) { return device_solve(solve, a, b, x); }
int farcall_cuda_device_posv(long a, long b, long *x)
{
    return device_solve(solve_definite, a, b, x);
}

int farcall_cuda_device_syevd(long a, long *w, long *v)
{
    array *on = find(a), made[2] = {0};
    int info = 0;
    keep_all(on && eigen(on, &made[0], &made[1], &info), 2, made, (long *[]){w, v});
    return info;
}

int farcall_cuda_device_gesvd(long a, long *u, long *s, long *vt)
{
    array *on = find(a), made[3] = {0};
    int info = 0;
    keep_all(on && singular(on, &made[0], &made[1], &made[2], &info), 3, made,
             (long *[]){u, s, vt});
    return info;
}

long farcall_cuda_device_fft(int rank, const int *dims, int sign, long x)
{
    array *on = find(x), made = {0};
    long id = 0;
    keep_all(on && transform(rank, dims, sign, on, -1, &made), 1, &made, (long *[]){&id});
    return id;
}
