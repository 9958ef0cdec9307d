/* The transforms in one precision. FFTW, COMPLEX and REAL make names, T is the real type. */

/* Real numbers in a row of half a transform. */
#define HALF(n) ((n) < 0 ? 0 : 2L * ((n) / 2 + 1))

/* Without a transform, its m x n numbers are NaN: an array may have those of an earlier call. */
static void FFTW(not_found)(T *y, long m, long n)
{
    for (long i = 0; m > 0 && i < m * n; i++)
        y[i] = NAN;
}

/* Computes the m x n numbers of y. */
static void FFTW(run)(FFTW(plan) plan, T *y, long m, long n, int *info)
{
    *info = plan == NULL;
    if (plan == NULL) {
        FFTW(not_found)(y, m, n);
        return;
    }
    FFTW(execute)(plan);
    pthread_mutex_lock(&planner);
    FFTW(destroy_plan)(plan);
    pthread_mutex_unlock(&planner);
}

void COMPLEX(fft)(int n, int howmany, int sign, FFTW(complex) *x, FFTW(complex) *y, int *info)
{
    *info = n < 1 ? -1 : howmany < 0 ? -2 : sign != -1 && sign != 1 ? -3 : 0;
    if (*info)
        FFTW(not_found)((T *)y, howmany, 2L * n);
    if (*info || howmany == 0)
        return;
    pthread_mutex_lock(&planner);
    FFTW(plan) plan = FFTW(plan_many_dft)(1, &n, howmany, x, NULL, 1, n, y, NULL, 1, n, sign,
                                          FFTW_ESTIMATE);
    pthread_mutex_unlock(&planner);
    FFTW(run)(plan, (T *)y, howmany, 2L * n, info);
}

void COMPLEX(fft2)(int m, int n, int sign, FFTW(complex) *x, FFTW(complex) *y, int *info)
{
    *info = m < 1 ? -1 : n < 1 ? -2 : sign != -1 && sign != 1 ? -3 : 0;
    if (*info) {
        FFTW(not_found)((T *)y, m, 2L * n);
        return;
    }
    pthread_mutex_lock(&planner);
    FFTW(plan) plan = FFTW(plan_dft_2d)(m, n, x, y, sign, FFTW_ESTIMATE);
    pthread_mutex_unlock(&planner);
    FFTW(run)(plan, (T *)y, m, 2L * n, info);
}

void COMPLEX(fftn)(int rank, const int *dims, long total, int sign, FFTW(complex) *x,
                   FFTW(complex) *y, int *info)
{
    long product = 1;
    *info = rank < 1 ? -1 : 0;
    for (int i = 0; i < rank && *info == 0; i++) {
        if (dims[i] < 1)
            *info = -2;
        else if (product > total / dims[i])
            *info = -3; /* and the product cannot overflow */
        else
            product *= dims[i];
    }
    if (*info == 0 && product != total)
        *info = -3;
    if (*info == 0 && sign != -1 && sign != 1)
        *info = -4;
    if (*info) {
        FFTW(not_found)((T *)y, total, 2);
        return;
    }
    pthread_mutex_lock(&planner);
    FFTW(plan) plan = FFTW(plan_dft)(rank, dims, x, y, sign, FFTW_ESTIMATE);
    pthread_mutex_unlock(&planner);
    FFTW(run)(plan, (T *)y, total, 2, info);
}

void REAL(fft)(int n, int howmany, T *x, FFTW(complex) *y, int *info)
{
    *info = n < 1 ? -1 : howmany < 0 ? -2 : 0;
    if (*info)
        FFTW(not_found)((T *)y, howmany, HALF(n));
    if (*info || howmany == 0)
        return;
    pthread_mutex_lock(&planner);
    FFTW(plan) plan = FFTW(plan_many_dft_r2c)(1, &n, howmany, x, NULL, 1, n, y, NULL, 1,
                                              n / 2 + 1, FFTW_ESTIMATE);
    pthread_mutex_unlock(&planner);
    FFTW(run)(plan, (T *)y, howmany, HALF(n), info);
}

void REAL(ifft)(int n, int howmany, FFTW(complex) *x, T *y, int *info)
{
    *info = n < 1 ? -1 : howmany < 0 ? -2 : 0;
    if (*info)
        FFTW(not_found)(y, howmany, n);
    if (*info || howmany == 0)
        return;
    pthread_mutex_lock(&planner);
    FFTW(plan) plan = FFTW(plan_many_dft_c2r)(1, &n, howmany, x, NULL, 1, n / 2 + 1, y, NULL, 1,
                                              n, FFTW_ESTIMATE);
    pthread_mutex_unlock(&planner);
    FFTW(run)(plan, y, howmany, n, info);
}

void REAL(fft2)(int m, int n, T *x, FFTW(complex) *y, int *info)
{
    *info = m < 1 ? -1 : n < 1 ? -2 : 0;
    if (*info) {
        FFTW(not_found)((T *)y, m, HALF(n));
        return;
    }
    pthread_mutex_lock(&planner);
    FFTW(plan) plan = FFTW(plan_dft_r2c_2d)(m, n, x, y, FFTW_ESTIMATE);
    pthread_mutex_unlock(&planner);
    FFTW(run)(plan, (T *)y, m, HALF(n), info);
}

/* FFTW destroys the input of this one. Nobody sees it: what a function writes to an IN array is
   private to the call. */
void REAL(ifft2)(int m, int n, FFTW(complex) *x, T *y, int *info)
{
    *info = m < 1 ? -1 : n < 1 ? -2 : 0;
    if (*info) {
        FFTW(not_found)(y, m, n);
        return;
    }
    pthread_mutex_lock(&planner);
    FFTW(plan) plan = FFTW(plan_dft_c2r_2d)(m, n, x, y, FFTW_ESTIMATE);
    pthread_mutex_unlock(&planner);
    FFTW(run)(plan, y, m, n, info);
}

#undef HALF
