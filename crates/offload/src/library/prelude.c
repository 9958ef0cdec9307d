/* A drop-in library of Farcall, written by `farcall offload build`. Each function compares the
   operations of the call with a bound, and goes on to the real function below it. Above, the
   runtime decides, which is in libfarcall.so.1. Compilers can take the parts of this text at the
   same time: -DPART=0, -DPART=1 and so on. Without PART, they take all of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

typedef void *A;
typedef long L;
typedef int32_t I4;
typedef int64_t I8;

/* As in crates/offload/src/shim.rs. */
struct farcall_routine {
    void *real;
    double least;
    const char *symbol;
    const char *interface;
    uint64_t below;
    uint32_t integer;
    uint32_t counts;
};
enum { HERE, DONE, WATCHED };

/* What the parts share is in part 0, and not seen outside of the library. */
#if !defined PART || PART == 0
#define SHARED __attribute__((visibility("hidden")))
#else
#define SHARED extern __attribute__((visibility("hidden")))
#endif
SHARED void (*farcall_offload_add)(struct farcall_routine *, uint64_t count);
SHARED A (*farcall_offload_real)(struct farcall_routine *);
SHARED int (*farcall_offload_take)(struct farcall_routine *, double, A *, A caller, A *watch);
SHARED void (*farcall_offload_watched)(A watch);

/* A function of the runtime. Its version changes when these declarations do. */
static A runtime(A library, const char *name) {
    A found = library ? dlvsym(library, name, "FARCALL_OFFLOAD_1") : 0;
    if (!found) {
        Dl_info own = {0};
        dladdr(&farcall_offload_add, &own);
        fprintf(stderr,
                "farcall offload: cannot load the client library: %s. Put libfarcall.so.1 of the "
                "Farcall that made %s beside it, or into the folder above\n",
                dlerror(), own.dli_fname ? own.dli_fname : "the drop-in library");
        _exit(127);
    }
    return found;
}

/* The runtime is loaded and not linked, so that its other names, such as those of GridRPC, do not
   come before those of the program's own libraries. */
static void load(void) {
    A library = dlopen("libfarcall.so.1", RTLD_NOW | RTLD_LOCAL);
    farcall_offload_add = runtime(library, "farcall_offload_add");
    farcall_offload_real = runtime(library, "farcall_offload_real");
    farcall_offload_take = runtime(library, "farcall_offload_take");
    farcall_offload_watched = runtime(library, "farcall_offload_watched");
}

static inline double least(double a, double b) { return a < b ? a : b; }
static inline double greatest(double a, double b) { return a > b ? a : b; }
static inline double square(double a) { return a * a; }
static inline double cube(double a) { return a * a * a; }

/* The real function. A call through it needs no frame here, so that a longjmp out of an error
   handler leaves nothing behind. */
static inline A real(struct farcall_routine *r) {
    A known = __atomic_load_n(&r->real, __ATOMIC_RELAXED);
    return __builtin_expect(known != 0, 1) ? known : farcall_offload_real(r);
}

/* Whether the runtime decides about the call. */
static inline int is_large(struct farcall_routine *r, double cost) {
    if (__builtin_expect(cost >= r->least, 0))
        return 1;
    if (__builtin_expect(r->counts, 0))
        __atomic_fetch_add(&r->below, 1, __ATOMIC_RELAXED);
    return 0;
}

/* A character of Fortran for a constant of CBLAS; 0 for a wrong one. */
static inline char letter(int constant) {
    switch (constant) {
    case 111: return 'N';
    case 112: return 'T';
    case 113: return 'C';
    case 121: return 'U';
    case 122: return 'L';
    case 131: return 'N';
    case 132: return 'U';
    case 141: return 'L';
    case 142: return 'R';
    default: return 0;
    }
}

/* The same matrix by rows is its transpose by columns. To real numbers, 'C' is 'T'. A complex
   routine takes one of both, and the other one stays what it is: a wrong argument. */
static inline char other(char letter, char transposed, int is_real) {
    switch (letter) {
    case 'U': return 'L';
    case 'L': return 'U';
    case 'N': return transposed;
    case 'T':
    case 'C': return is_real || letter == transposed ? 'N' : letter;
    default: return 0;
    }
}
static inline char other_side(char letter) {
    return letter == 'L' ? 'R' : letter == 'R' ? 'L' : 0;
}
