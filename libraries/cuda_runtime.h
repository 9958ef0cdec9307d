/* NVIDIA's libraries, loaded when a function first needs them: the few prototypes that cuda_shim.c
   uses, after NVIDIA's documentation of CUDA 11 to 13. So the shim is built, and its interface
   served, on a machine without CUDA. */
#include <stddef.h>
#include <stdint.h>

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
