/* The functions of libraries/gsl.idl. GSL's own handler of errors would end the process: it is
   switched off, and every function returns the status. */
#include <gsl/gsl_errno.h>
#include <gsl/gsl_integration.h>
#include <gsl/gsl_min.h>
#include <gsl/gsl_multimin.h>
#include <gsl/gsl_odeiv2.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_roots.h>
#include <gsl/gsl_sf.h>
#include <gsl/gsl_spline.h>
#include <math.h>
#include <string.h>

typedef double function(double x, void *user);

static gsl_function start(function *f)
{
    gsl_set_error_handler_off();
    return (gsl_function){.function = f, .params = NULL};
}

int farcall_gsl_integrate(double a, double b, double absolute, double relative, int most,
                          double *value, double *error, function *f)
{
    gsl_function wrapped = start(f);
    *value = *error = 0;
    if (most < 1 || isnan(a) || isnan(b))
        return GSL_EINVAL;
    size_t limit = (size_t)most;
    gsl_integration_workspace *work = gsl_integration_workspace_alloc(limit);
    if (!work)
        return GSL_ENOMEM;
    /* GSL integrates upwards only where an end is infinite. */
    double sign = a > b ? -1 : 1, low = fmin(a, b), high = fmax(a, b);
    int status;
    if (isinf(low) && isinf(high))
        status = gsl_integration_qagi(&wrapped, absolute, relative, limit, work, value, error);
    else if (isinf(high))
        status = gsl_integration_qagiu(&wrapped, low, absolute, relative, limit, work, value,
                                       error);
    else if (isinf(low))
        status = gsl_integration_qagil(&wrapped, high, absolute, relative, limit, work, value,
                                       error);
    else
        status = gsl_integration_qags(&wrapped, low, high, absolute, relative, limit, work, value,
                                      error);
    *value *= sign;
    gsl_integration_workspace_free(work);
    return status;
}

int farcall_gsl_root(double low, double high, double absolute, double relative, int most,
                     double *x, int *iterations, function *f)
{
    gsl_function wrapped = start(f);
    *x = 0;
    *iterations = 0;
    gsl_root_fsolver *solver = gsl_root_fsolver_alloc(gsl_root_fsolver_brent);
    if (!solver)
        return GSL_ENOMEM;
    int status = gsl_root_fsolver_set(solver, &wrapped, low, high);
    int going = status == GSL_SUCCESS;
    while (going) {
        if (*iterations == most) {
            status = GSL_EMAXITER;
            break;
        }
        ++*iterations;
        status = gsl_root_fsolver_iterate(solver);
        if (status == GSL_SUCCESS)
            status = gsl_root_test_interval(gsl_root_fsolver_x_lower(solver),
                                            gsl_root_fsolver_x_upper(solver), absolute, relative);
        *x = gsl_root_fsolver_root(solver);
        going = status == GSL_CONTINUE;
    }
    gsl_root_fsolver_free(solver);
    return status;
}

int farcall_gsl_minimum(double low, double guess, double high, double absolute, double relative,
                        int most, double *x, double *value, int *iterations, function *f)
{
    gsl_function wrapped = start(f);
    *x = *value = 0;
    *iterations = 0;
    gsl_min_fminimizer *minimizer = gsl_min_fminimizer_alloc(gsl_min_fminimizer_brent);
    if (!minimizer)
        return GSL_ENOMEM;
    int status = gsl_min_fminimizer_set(minimizer, &wrapped, guess, low, high);
    int going = status == GSL_SUCCESS;
    while (going) {
        if (*iterations == most) {
            status = GSL_EMAXITER;
            break;
        }
        ++*iterations;
        status = gsl_min_fminimizer_iterate(minimizer);
        if (status == GSL_SUCCESS)
            status = gsl_min_test_interval(gsl_min_fminimizer_x_lower(minimizer),
                                           gsl_min_fminimizer_x_upper(minimizer), absolute,
                                           relative);
        *x = gsl_min_fminimizer_x_minimum(minimizer);
        *value = gsl_min_fminimizer_f_minimum(minimizer);
        going = status == GSL_CONTINUE;
    }
    gsl_min_fminimizer_free(minimizer);
    return status;
}

typedef double function_of_array(double *x, void *user);

static double of_vector(const gsl_vector *x, void *user)
{
    /* GSL's own vectors are contiguous. */
    function_of_array **f = user;
    return (*f)(x->data, NULL);
}

int farcall_gsl_minimize(int n, double *x, const double *step, double size, int most,
                         double *value, int *iterations, function_of_array *f)
{
    start(NULL);
    *value = 0;
    *iterations = 0;
    if (n < 1)
        return GSL_EINVAL;
    size_t count = (size_t)n;
    gsl_multimin_function wrapped = {.f = of_vector, .n = count, .params = &f};
    gsl_vector *from = gsl_vector_alloc(count), *steps = gsl_vector_alloc(count);
    gsl_multimin_fminimizer *minimizer =
        gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, count);
    int status = from && steps && minimizer ? GSL_SUCCESS : GSL_ENOMEM;
    if (status == GSL_SUCCESS) {
        memcpy(from->data, x, count * sizeof *x);
        memcpy(steps->data, step, count * sizeof *step);
        status = gsl_multimin_fminimizer_set(minimizer, &wrapped, from, steps);
    }
    int going = status == GSL_SUCCESS;
    while (going) {
        if (*iterations == most) {
            status = GSL_EMAXITER;
            break;
        }
        ++*iterations;
        status = gsl_multimin_fminimizer_iterate(minimizer);
        if (status == GSL_SUCCESS)
            status = gsl_multimin_test_size(gsl_multimin_fminimizer_size(minimizer), size);
        memcpy(x, gsl_multimin_fminimizer_x(minimizer)->data, count * sizeof *x);
        *value = gsl_multimin_fminimizer_minimum(minimizer);
        going = status == GSL_CONTINUE;
    }
    if (minimizer)
        gsl_multimin_fminimizer_free(minimizer);
    if (from)
        gsl_vector_free(from);
    if (steps)
        gsl_vector_free(steps);
    return status;
}

typedef void right_side(double t, const double *y, double *dydt);

static int of_state(double t, const double *y, double *dydt, void *user)
{
    right_side **rhs = user;
    (*rhs)(t, y, dydt);
    return GSL_SUCCESS;
}

int farcall_gsl_ode(int n, int points, const double *t, const double *first, double *y,
                    double absolute, double relative, right_side *rhs)
{
    start(NULL);
    if (n < 1 || points < 1)
        return GSL_EINVAL;
    size_t count = (size_t)n;
    gsl_odeiv2_system system = {.function = of_state, .dimension = count, .params = &rhs};
    double span = t[points - 1] - t[0], way = span < 0 ? -1 : 1;
    double step = span == 0 ? 1e-6 : span * 1e-4;
    gsl_odeiv2_driver *driver =
        gsl_odeiv2_driver_alloc_y_new(&system, gsl_odeiv2_step_rk8pd, step, absolute, relative);
    if (!driver)
        return GSL_EINVAL;
    int status = GSL_SUCCESS;
    double now = t[0];
    memcpy(y, first, count * sizeof *y);
    for (int i = 1; i < points && status == GSL_SUCCESS; i++) {
        double *row = y + (size_t)i * count;
        memcpy(row, row - count, count * sizeof *row);
        /* Times go one way. */
        status = (t[i] - t[i - 1]) * way < 0
                     ? GSL_EINVAL
                     : gsl_odeiv2_driver_apply(driver, &now, t[i], row);
    }
    gsl_odeiv2_driver_free(driver);
    return status;
}

int farcall_gsl_spline(int n, const double *x, const double *y, int m, const double *at,
                       double *value, double *slope)
{
    start(NULL);
    if (n < 3)
        return GSL_EINVAL;
    gsl_spline *spline = gsl_spline_alloc(gsl_interp_cspline, (size_t)n);
    gsl_interp_accel *place = gsl_interp_accel_alloc();
    int status = spline && place ? gsl_spline_init(spline, x, y, (size_t)n) : GSL_ENOMEM;
    for (int i = 0; i < m && status == GSL_SUCCESS; i++) {
        status = gsl_spline_eval_e(spline, at[i], place, &value[i]);
        if (status == GSL_SUCCESS)
            status = gsl_spline_eval_deriv_e(spline, at[i], place, &slope[i]);
    }
    if (spline)
        gsl_spline_free(spline);
    if (place)
        gsl_interp_accel_free(place);
    return status;
}

typedef int special(double x, gsl_sf_result *result);
typedef int special_of(double order, double x, gsl_sf_result *result);

#define WITH_PRECISION(name)                                                                     \
    static int name(double x, gsl_sf_result *result)                                             \
    {                                                                                            \
        return gsl_sf_##name##_e(x, GSL_PREC_DOUBLE, result);                                    \
    }

WITH_PRECISION(airy_Ai)
WITH_PRECISION(airy_Bi)
WITH_PRECISION(ellint_Kcomp)
WITH_PRECISION(ellint_Ecomp)

static const struct {
    const char *name;
    special *f;
} specials[] = {
    {"airy_ai", airy_Ai},
    {"airy_bi", airy_Bi},
    {"dawson", gsl_sf_dawson_e},
    {"debye_1", gsl_sf_debye_1_e},
    {"dilog", gsl_sf_dilog_e},
    {"ellint_K", ellint_Kcomp},
    {"ellint_E", ellint_Ecomp},
    {"erf", gsl_sf_erf_e},
    {"erfc", gsl_sf_erfc_e},
    {"expint_E1", gsl_sf_expint_E1_e},
    {"gamma", gsl_sf_gamma_e},
    {"lngamma", gsl_sf_lngamma_e},
    {"psi", gsl_sf_psi_e},
    {"synchrotron_1", gsl_sf_synchrotron_1_e},
    {"zeta", gsl_sf_zeta_e},
    {"Si", gsl_sf_Si_e},
    {"Ci", gsl_sf_Ci_e},
};

static const struct {
    const char *name;
    special_of *f;
} specials_of[] = {
    {"bessel_J", gsl_sf_bessel_Jnu_e},
    {"bessel_Y", gsl_sf_bessel_Ynu_e},
    {"bessel_I", gsl_sf_bessel_Inu_e},
    {"bessel_K", gsl_sf_bessel_Knu_e},
    {"gamma_inc_P", gsl_sf_gamma_inc_P_e},
    {"gamma_inc_Q", gsl_sf_gamma_inc_Q_e},
};

/* The value where there is none is NaN; the status is the first that is not 0. */
static double take(int status, gsl_sf_result result, int *first)
{
    if (status != GSL_SUCCESS && status != GSL_EUNDRFLW) {
        if (*first == GSL_SUCCESS)
            *first = status;
        return NAN;
    }
    return result.val;
}

int farcall_gsl_special(const char *name, int n, const double *x, double *y)
{
    start(NULL);
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        if (strcmp(name, specials[i].name))
            continue;
        int first = GSL_SUCCESS;
        for (int j = 0; j < n; j++) {
            gsl_sf_result result = {0};
            int status = specials[i].f(x[j], &result);
            y[j] = take(status, result, &first);
        }
        return first;
    }
    return GSL_EINVAL;
}

int farcall_gsl_special_of(const char *name, double order, int n, const double *x, double *y)
{
    start(NULL);
    for (size_t i = 0; i < sizeof specials_of / sizeof *specials_of; i++) {
        if (strcmp(name, specials_of[i].name))
            continue;
        int first = GSL_SUCCESS;
        for (int j = 0; j < n; j++) {
            gsl_sf_result result = {0};
            int status = specials_of[i].f(order, x[j], &result);
            y[j] = take(status, result, &first);
        }
        return first;
    }
    return GSL_EINVAL;
}

static double gaussian(const gsl_rng *r, double a, double b)
{
    (void)b;
    return gsl_ran_gaussian(r, a);
}

static double exponential(const gsl_rng *r, double a, double b)
{
    (void)b;
    return gsl_ran_exponential(r, a);
}

static double poisson(const gsl_rng *r, double a, double b)
{
    (void)b;
    return gsl_ran_poisson(r, a);
}

static double student(const gsl_rng *r, double a, double b)
{
    (void)b;
    return gsl_ran_tdist(r, a);
}

/* Which of a and b must be greater than 0: with other values GSL may not come to an end. */
enum positive { NONE, A, A_AND_B };

static const struct {
    const char *name;
    double (*draw)(const gsl_rng *r, double a, double b);
    enum positive positive;
} distributions[] = {
    {"flat", gsl_ran_flat, NONE},       {"gaussian", gaussian, NONE},
    {"exponential", exponential, A},    {"gamma", gsl_ran_gamma, A_AND_B},
    {"beta", gsl_ran_beta, A_AND_B},    {"weibull", gsl_ran_weibull, A_AND_B},
    {"poisson", poisson, A},            {"student", student, A},
};

int farcall_gsl_random(const char *name, unsigned long seed, double a, double b, int n, double *x)
{
    start(NULL);
    if (!isfinite(a) || !isfinite(b))
        return GSL_EDOM;
    for (size_t i = 0; i < sizeof distributions / sizeof *distributions; i++) {
        if (strcmp(name, distributions[i].name))
            continue;
        enum positive positive = distributions[i].positive;
        if ((positive != NONE && a <= 0) || (positive == A_AND_B && b <= 0))
            return GSL_EDOM;
        gsl_rng *r = gsl_rng_alloc(gsl_rng_mt19937);
        if (!r)
            return GSL_ENOMEM;
        gsl_rng_set(r, seed);
        for (int j = 0; j < n; j++)
            x[j] = distributions[i].draw(r, a, b);
        gsl_rng_free(r);
        return GSL_SUCCESS;
    }
    return GSL_EINVAL;
}
