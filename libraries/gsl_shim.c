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

/* Values that are not computed: the memory of a call may have those of an earlier one. */
static void not_computed(double *values, size_t count)
{
    while (count--)
        *values++ = NAN;
}

int farcall_gsl_integrate(double a, double b, double absolute, double relative, int most,
                          double *value, double *error, function *f)
{
    gsl_function wrapped = start(f);
    *value = *error = 0;
    if (most < 1 || isnan(a) || isnan(b))
        return GSL_EINVAL;
    if (isinf(a) && a == b)
        return GSL_SUCCESS; /* nothing lies between them */
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

/* A solver of GSL, and where its results go. */
struct solver {
    void *state;
    double absolute, relative, *x, *value;
    size_t n;
};

/* Takes steps until one is the last, fails, or is one too many. */
static int iterate(int (*step)(const struct solver *), const struct solver *solver, int most,
                   int *iterations)
{
    int status = GSL_CONTINUE;
    while (status == GSL_CONTINUE) {
        if (*iterations >= most)
            return GSL_EMAXITER;
        ++*iterations;
        status = step(solver);
    }
    return status;
}

static int step_to_root(const struct solver *solver)
{
    gsl_root_fsolver *state = solver->state;
    int status = gsl_root_fsolver_iterate(state);
    *solver->x = gsl_root_fsolver_root(state);
    return status ? status
                  : gsl_root_test_interval(gsl_root_fsolver_x_lower(state),
                                           gsl_root_fsolver_x_upper(state), solver->absolute,
                                           solver->relative);
}

int farcall_gsl_root(double low, double high, double absolute, double relative, int most,
                     double *x, int *iterations, function *f)
{
    gsl_function wrapped = start(f);
    *x = 0;
    *iterations = 0;
    gsl_root_fsolver *state = gsl_root_fsolver_alloc(gsl_root_fsolver_brent);
    if (!state)
        return GSL_ENOMEM;
    struct solver solver = {.state = state, .absolute = absolute, .relative = relative, .x = x};
    int status = gsl_root_fsolver_set(state, &wrapped, low, high);
    if (status == GSL_SUCCESS)
        status = iterate(step_to_root, &solver, most, iterations);
    gsl_root_fsolver_free(state);
    return status;
}

static int step_to_minimum(const struct solver *solver)
{
    gsl_min_fminimizer *state = solver->state;
    int status = gsl_min_fminimizer_iterate(state);
    *solver->x = gsl_min_fminimizer_x_minimum(state);
    *solver->value = gsl_min_fminimizer_f_minimum(state);
    return status ? status
                  : gsl_min_test_interval(gsl_min_fminimizer_x_lower(state),
                                          gsl_min_fminimizer_x_upper(state), solver->absolute,
                                          solver->relative);
}

int farcall_gsl_minimum(double low, double guess, double high, double absolute, double relative,
                        int most, double *x, double *value, int *iterations, function *f)
{
    gsl_function wrapped = start(f);
    *x = *value = 0;
    *iterations = 0;
    gsl_min_fminimizer *state = gsl_min_fminimizer_alloc(gsl_min_fminimizer_brent);
    if (!state)
        return GSL_ENOMEM;
    struct solver solver = {
        .state = state, .absolute = absolute, .relative = relative, .x = x, .value = value};
    int status = gsl_min_fminimizer_set(state, &wrapped, guess, low, high);
    if (status == GSL_SUCCESS)
        status = iterate(step_to_minimum, &solver, most, iterations);
    gsl_min_fminimizer_free(state);
    return status;
}

typedef double function_of_array(double *x, void *user);

static double of_vector(const gsl_vector *x, void *user)
{
    /* GSL's own vectors are contiguous. */
    function_of_array **f = user;
    return (*f)(x->data, NULL);
}

static int step_of_simplex(const struct solver *solver)
{
    gsl_multimin_fminimizer *state = solver->state;
    int status = gsl_multimin_fminimizer_iterate(state);
    memcpy(solver->x, gsl_multimin_fminimizer_x(state)->data, solver->n * sizeof *solver->x);
    *solver->value = gsl_multimin_fminimizer_minimum(state);
    return status ? status
                  : gsl_multimin_test_size(gsl_multimin_fminimizer_size(state), solver->absolute);
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
    gsl_multimin_fminimizer *state =
        gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, count);
    struct solver solver = {.state = state, .absolute = size, .x = x, .value = value, .n = count};
    int status = GSL_ENOMEM;
    if (from && steps && state) {
        memcpy(from->data, x, count * sizeof *x);
        memcpy(steps->data, step, count * sizeof *step);
        status = gsl_multimin_fminimizer_set(state, &wrapped, from, steps);
        if (status == GSL_SUCCESS)
            status = iterate(step_of_simplex, &solver, most, iterations);
    }
    if (state)
        gsl_multimin_fminimizer_free(state);
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
    not_computed(y, (size_t)points * (size_t)n);
    for (int i = 0; i < points; i++)
        if (!isfinite(t[i]))
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
        if (status != GSL_SUCCESS)
            not_computed(row, count);
    }
    gsl_odeiv2_driver_free(driver);
    return status;
}

int farcall_gsl_spline(int n, const double *x, const double *y, int m, const double *at,
                       double *value, double *slope)
{
    start(NULL);
    not_computed(value, (size_t)m);
    not_computed(slope, (size_t)m);
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

/* Functions of a number, and those that also have an order. */
static const struct {
    const char *name;
    special *f;
    special_of *of;
} specials[] = {
    {"airy_ai", airy_Ai, NULL},
    {"airy_bi", airy_Bi, NULL},
    {"dawson", gsl_sf_dawson_e, NULL},
    {"debye_1", gsl_sf_debye_1_e, NULL},
    {"dilog", gsl_sf_dilog_e, NULL},
    {"ellint_K", ellint_Kcomp, NULL},
    {"ellint_E", ellint_Ecomp, NULL},
    {"erf", gsl_sf_erf_e, NULL},
    {"erfc", gsl_sf_erfc_e, NULL},
    {"expint_E1", gsl_sf_expint_E1_e, NULL},
    {"gamma", gsl_sf_gamma_e, NULL},
    {"lngamma", gsl_sf_lngamma_e, NULL},
    {"psi", gsl_sf_psi_e, NULL},
    {"synchrotron_1", gsl_sf_synchrotron_1_e, NULL},
    {"zeta", gsl_sf_zeta_e, NULL},
    {"Si", gsl_sf_Si_e, NULL},
    {"Ci", gsl_sf_Ci_e, NULL},
    {"bessel_J", NULL, gsl_sf_bessel_Jnu_e},
    {"bessel_Y", NULL, gsl_sf_bessel_Ynu_e},
    {"bessel_I", NULL, gsl_sf_bessel_Inu_e},
    {"bessel_K", NULL, gsl_sf_bessel_Knu_e},
    {"gamma_inc_P", NULL, gsl_sf_gamma_inc_P_e},
    {"gamma_inc_Q", NULL, gsl_sf_gamma_inc_Q_e},
};

/* A value that does not exist is NaN. Returns the first status that is not 0. */
static int evaluate(const char *name, const double *order, int n, const double *x, double *y)
{
    start(NULL);
    not_computed(y, (size_t)n);
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        if (strcmp(name, specials[i].name) || !specials[i].of != !order)
            continue;
        int first = GSL_SUCCESS;
        for (int j = 0; j < n; j++) {
            gsl_sf_result result = {0};
            int status = order ? specials[i].of(*order, x[j], &result)
                               : specials[i].f(x[j], &result);
            int has_value = status == GSL_SUCCESS || status == GSL_EUNDRFLW;
            y[j] = has_value ? result.val : NAN;
            if (!has_value && first == GSL_SUCCESS)
                first = status;
        }
        return first;
    }
    return GSL_EINVAL;
}

int farcall_gsl_special(const char *name, int n, const double *x, double *y)
{
    return evaluate(name, NULL, n, x, y);
}

int farcall_gsl_special_of(const char *name, double order, int n, const double *x, double *y)
{
    return evaluate(name, &order, n, x, y);
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

/* GSL counts in 32 bits: with larger means, numbers would wrap around, or never come. */
static const double MOST_MEAN = 4e9;

int farcall_gsl_random(const char *name, unsigned long seed, double a, double b, int n, double *x)
{
    start(NULL);
    not_computed(x, (size_t)n);
    if (!isfinite(a) || !isfinite(b))
        return GSL_EDOM;
    for (size_t i = 0; i < sizeof distributions / sizeof *distributions; i++) {
        if (strcmp(name, distributions[i].name))
            continue;
        enum positive positive = distributions[i].positive;
        if ((positive != NONE && a <= 0) || (positive == A_AND_B && b <= 0))
            return GSL_EDOM;
        if (distributions[i].draw == poisson && a > MOST_MEAN)
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
