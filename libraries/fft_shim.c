/* Fourier transforms of libraries/fft.idl over FFTW: plans are made, used and destroyed in a call.
   Plans are FFTW_ESTIMATE, so that results do not depend on timing. */
#include <fftw3.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* FFTW's planner is not reentrant. */
static pthread_mutex_t planner = PTHREAD_MUTEX_INITIALIZER;

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#define FFTW(name) JOIN(fftwf_, name)
#define COMPLEX(name) JOIN(c, name)
#define REAL(name) JOIN(s, name)
#define T float
#include "fft_transforms.h"
#undef FFTW
#undef COMPLEX
#undef REAL
#undef T

#define FFTW(name) JOIN(fftw_, name)
#define COMPLEX(name) JOIN(z, name)
#define REAL(name) JOIN(d, name)
#define T double
#include "fft_transforms.h"
