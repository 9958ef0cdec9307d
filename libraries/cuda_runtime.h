/* NVIDIA's libraries, loaded when a function first needs them: the few prototypes that cuda_shim.c
   uses, after NVIDIA's documentation of CUDA 11 to 13. So the shim is built, and its interface
   served, on a machine without CUDA. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPY_TO_DEVICE = 1, COPY_TO_HOST = 2, COPY_ON_DEVICE = 3 }; /* cudaMemcpyKind */
enum { OUT_OF_MEMORY = 2, NO_DEVICE = 100, REFUSED_BY_SYSTEM = 304 };  /* cudaError_t */
enum { FLOAT = 0, DOUBLE = 1, COMPLEX_FLOAT = 4, COMPLEX_DOUBLE = 5 }; /* cudaDataType_t */
enum { COMPUTE_FLOAT = 68, COMPUTE_DOUBLE = 70 };                   /* cublasComputeType_t */
enum { AS_IT_IS = 0, TRANSPOSED = 1, CONJUGATED = 2 };              /* cublasOperation_t */
enum { LOWER = 0 };                                                 /* cublasFillMode_t */
enum { WITH_VECTORS = 1 };                                          /* cusolverEigMode_t */
enum { TRANSFORM_FLOAT = 0x29, TRANSFORM_DOUBLE = 0x69 };           /* cufftType */

typedef struct context *handle; /* of cuBLAS and of cuSOLVER */
typedef struct params *solver_params;

/* Result, name, parameters. All results are status codes, of which 0 is success. */
#define CUDART(F)                                                                                 \
    F(int, cudaMalloc, (void **, size_t))                                                         \
    F(int, cudaFree, (void *))                                                                    \
    F(int, cudaMemcpy, (void *, const void *, size_t, int))                                       \
    F(int, cudaMemGetInfo, (size_t *, size_t *))                                                  \
    F(int, cudaDeviceSynchronize, (void))                                                         \
    F(int, cudaGetDeviceCount, (int *))                                                           \
    F(int, cudaGetLastError, (void))                                                              \
    F(const char *, cudaGetErrorString, (int))

#define GEAM (handle, int, int, int, int, const void *, const void *, int, const void *,          \
              const void *, int, void *, int)
#define CUBLAS(F)                                                                                 \
    F(int, cublasCreate_v2, (handle *))                                                           \
    F(int, cublasGemmEx,                                                                          \
      (handle, int, int, int, int, int, const void *, const void *, int, int, const void *, int,  \
       int, const void *, void *, int, int, int, int))                                            \
    F(int, cublasSgeam, GEAM)                                                                     \
    F(int, cublasDgeam, GEAM)                                                                     \
    F(int, cublasCgeam, GEAM)                                                                     \
    F(int, cublasZgeam, GEAM)

#define CUSOLVER(F)                                                                               \
    F(int, cusolverDnCreate, (handle *))                                                          \
    F(int, cusolverDnCreateParams, (solver_params *))                                             \
    F(int, cusolverDnXgetrf_bufferSize,                                                           \
      (handle, solver_params, int64_t, int64_t, int, const void *, int64_t, int, size_t *,        \
       size_t *))                                                                                 \
    F(int, cusolverDnXgetrf,                                                                      \
      (handle, solver_params, int64_t, int64_t, int, void *, int64_t, int64_t *, int, void *,     \
       size_t, void *, size_t, int *))                                                            \
    F(int, cusolverDnXgetrs,                                                                      \
      (handle, solver_params, int, int64_t, int64_t, int, const void *, int64_t, const int64_t *, \
       int, void *, int64_t, int *))                                                              \
    F(int, cusolverDnXpotrf_bufferSize,                                                           \
      (handle, solver_params, int, int64_t, int, const void *, int64_t, int, size_t *, size_t *)) \
    F(int, cusolverDnXpotrf,                                                                      \
      (handle, solver_params, int, int64_t, int, void *, int64_t, int, void *, size_t, void *,    \
       size_t, int *))                                                                            \
    F(int, cusolverDnXpotrs,                                                                      \
      (handle, solver_params, int, int64_t, int64_t, int, const void *, int64_t, int, void *,     \
       int64_t, int *))                                                                           \
    F(int, cusolverDnXsyevd_bufferSize,                                                           \
      (handle, solver_params, int, int, int64_t, int, const void *, int64_t, int, const void *,   \
       int, size_t *, size_t *))                                                                  \
    F(int, cusolverDnXsyevd,                                                                      \
      (handle, solver_params, int, int, int64_t, int, void *, int64_t, int, void *, int, void *,  \
       size_t, void *, size_t, int *))                                                            \
    F(int, cusolverDnXgesvd_bufferSize,                                                           \
      (handle, solver_params, signed char, signed char, int64_t, int64_t, int, const void *,      \
       int64_t, int, const void *, int, const void *, int64_t, int, const void *, int64_t, int,   \
       size_t *, size_t *))                                                                       \
    F(int, cusolverDnXgesvd,                                                                      \
      (handle, solver_params, signed char, signed char, int64_t, int64_t, int, void *, int64_t,   \
       int, void *, int, void *, int64_t, int, void *, int64_t, int, void *, size_t, void *,      \
       size_t, int *))

#define CUFFT(F)                                                                                  \
    F(int, cufftPlanMany,                                                                         \
      (int *, int, int *, int *, int, int, int *, int, int, int, int))                            \
    F(int, cufftDestroy, (int))                                                                   \
    F(int, cufftExecC2C, (int, void *, void *, int))                                              \
    F(int, cufftExecZ2Z, (int, void *, void *, int))

#define DECLARE(result, name, parameters) result(*name) parameters;

/* The functions of one library, in one struct, so that they are found by a list of names. */
static struct { CUDART(DECLARE) CUBLAS(DECLARE) CUSOLVER(DECLARE) CUFFT(DECLARE) } cuda;

/* Of the worker: the call fails with this text. */
extern void farcall_fail(const char *text) __attribute__((weak));

__attribute__((format(printf, 1, 2))) static bool fail(const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (!farcall_fail) {
        fprintf(stderr, "%s\n", text);
        abort();
    }
    farcall_fail(text);
    return false;
}

#define NAME(result, name, parameters) #name,
static const struct {
    const char *name, *versions[4];
} libraries[] = {
    {"cudart", {"13", "12", "11.0"}},
    {"nvJitLink", {"13", "12"}}, /* cuSOLVER needs this one and the next two. */
    {"cublasLt", {"13", "12", "11"}},
    {"cusparse", {"12", "11"}},
    {"cublas", {"13", "12", "11"}},
    {"cusolver", {"12", "11"}},
    {"cufft", {"12", "11", "10"}},
};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };
static const char *const names[] = {CUDART(NAME) CUBLAS(NAME) CUSOLVER(NAME) CUFFT(NAME)};

/* Loads a library from the folders that a pattern matches, or without one from the usual ones. */
static void *load_from(const char *pattern, const char *name, const char *version)
{
    char path[PATH_MAX];
    const char *slash = *pattern ? "/" : "";
    int length = snprintf(path, sizeof path, "%s%slib%s.so.%s", pattern, slash, name, version);
    if (length >= PATH_MAX)
        return NULL;
    if (!*pattern)
        return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    glob_t found = {0};
    void *library = NULL;
    if (glob(path, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !library; i++)
            library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_GLOBAL);
    globfree(&found);
    return library;
}

/* The folders of FARCALL_CUDA, the usual ones, and the packages of NVIDIA for Python. */
static void *load(int index)
{
    const char *own = getenv("FARCALL_CUDA"), *python = getenv("VIRTUAL_ENV");
    char patterns[8][PATH_MAX] = {{0}};
    int count = 0;
    if (own && *own) {
        snprintf(patterns[count++], PATH_MAX, "%s", own);
        snprintf(patterns[count++], PATH_MAX, "%s/lib64", own);
        snprintf(patterns[count++], PATH_MAX, "%s/*/lib", own);
    }
    count++;
    snprintf(patterns[count++], PATH_MAX, "/usr/local/cuda/lib64");
    snprintf(patterns[count++], PATH_MAX, "/opt/cuda/lib64");
    if (python && *python)
        snprintf(patterns[count++], PATH_MAX, "%s/lib/python3*/site-packages/nvidia/*/lib", python);
    for (int i = 0; i < count; i++)
        for (const char *const *version = libraries[index].versions; *version; version++) {
            void *library = load_from(patterns[i], libraries[index].name, *version);
            if (library)
                return library;
        }
    return NULL;
}

static bool load_all(void)
{
    static bool is_loaded;
    if (is_loaded)
        return true;
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
        return fail("there is no NVIDIA driver: %s. Install the driver of the GPU, or call a "
                    "server with a GPU; `nvidia-smi` shows whether a driver works", dlerror());
    void *loaded[LIBRARIES];
    for (int i = 0; i < LIBRARIES; i++)
        loaded[i] = load(i);
    void **function = (void **)&cuda;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        function[i] = NULL;
        for (int j = 0; j < LIBRARIES && !function[i]; j++)
            function[i] = loaded[j] ? dlsym(loaded[j], names[i]) : NULL;
        if (function[i])
            continue;
        for (int j = 0; j < LIBRARIES; j++)
            if (!loaded[j])
                return fail("lib%s.so is missing in versions 11 to 13 of CUDA. Install the CUDA "
                            "toolkit at the server, or name the folder of its libraries in "
                            "FARCALL_CUDA before `farcall serve`", libraries[j].name);
        return fail("CUDA's libraries have no function %s: install CUDA 11.1 or later", names[i]);
    }
    return is_loaded = true;
}
