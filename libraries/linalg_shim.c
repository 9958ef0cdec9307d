/* Stacks of matrices for libraries/linalg.idl: LAPACK for each matrix, several matrices at a time.

   Matrices are in C order, as NumPy has them. Each thread copies a matrix into column order, calls
   LAPACK and copies the result back. If a matrix fails, its info says why, and its results are NaN;
   factors, pivots and determinants are those of LAPACK, which a singular matrix has too.
   As many threads share a stack as OpenMP may use, which the server sets for each call; OpenBLAS
   has one thread meanwhile. A single matrix has all threads of OpenBLAS. */
#include <complex.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { GENERAL = 0, POSITIVE = 101, SYMMETRIC = 201, HERMITIAN = 211, UNKNOWN = -1 };
enum { NO_MEMORY = -1000 };
/* More bytes than there are: for sizes that LAPACK's integers cannot hold. */
#define TOO_MANY_BYTES ((size_t)1 << 56)

int openblas_get_num_threads(void);
void openblas_set_num_threads(int);

/* The matrices of a call, shared among threads. */
typedef struct {
    int threads, restore;
    long chunk;
    size_t each;
    char *memory;
} stack;

/* Memory of `bytes` bytes for each thread; the threads are 0 if there is no memory. */
static stack begin(long count, size_t bytes)
{
    stack made = {1, 0, 1, (bytes + 63) / 64 * 64, NULL};
    if (count > 1) {
        made.restore = openblas_get_num_threads();
        made.threads = count < omp_get_max_threads() ? (int)count : omp_get_max_threads();
        openblas_set_num_threads(1);
    }
    /* Several parts for each thread, because other programs may have some of the processors. */
    made.chunk = 1 + count / made.threads / 16;
    made.memory = malloc(made.each * made.threads + 64);
    if (made.memory == NULL)
        made.threads = 0;
    return made;
}

static void end(stack all)
{
    free(all.memory);
    if (all.restore)
        openblas_set_num_threads(all.restore);
}

/* Runs the block for each i; `memory` is the thread's own. Without memory, every info says so. */
#define FOR_EACH(count, bytes, info, ...)                                                          \
    do {                                                                                           \
        stack all = begin(count, bytes);                                                           \
        if (all.threads == 0)                                                                      \
            for (long i = 0; i < (count); i++)                                                     \
                (info)[i] = NO_MEMORY;                                                             \
        else                                                                                       \
            _Pragma("omp parallel for schedule(dynamic, all.chunk) num_threads(all.threads)")      \
            for (long i = 0; i < (count); i++) {                                                   \
                char *memory = all.memory + all.each * omp_get_thread_num();                       \
                __VA_ARGS__                                                                        \
            }                                                                                      \
        end(all);                                                                                  \
    } while (0)

/* Whether there was no memory, so that no matrix has results. The arrays of a call may have those
   of an earlier one. */
static int has_no_memory(long count, const int *info)
{
    return count > 0 && info[0] == NO_MEMORY;
}

static void not_found(void *results, size_t bytes)
{
    double *numbers = results;
    for (size_t i = 0; i < bytes / sizeof *numbers; i++)
        numbers[i] = NAN;
}

/* The next `count` elements of a type in the memory of a thread. */
#define TAKE(type, count) ((type *)take(&memory, sizeof(type) * (size_t)(count)))
#define ROOM(type, count) (sizeof(type) * (size_t)(count) + 16)

static void *take(char **memory, size_t bytes)
{
    void *start = *memory;
    *memory += (bytes + 15) / 16 * 16;
    return start;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

/* A letter of LAPACK, which may be a small one. */
static char capital(char letter)
{
    return (char)(letter >= 'a' && letter <= 'z' ? letter - 'a' + 'A' : letter);
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#define T double
#define IS_COMPLEX 0
#define STACK(name) JOIN(d, name)
#define LAPACK(name) JOIN(d, JOIN(name, _))
#include "linalg_stacks.h"
#undef T
#undef IS_COMPLEX
#undef STACK
#undef LAPACK

#define T double complex
#define IS_COMPLEX 1
#define STACK(name) JOIN(z, name)
#define LAPACK(name) JOIN(z, JOIN(name, _))
#include "linalg_stacks.h"
