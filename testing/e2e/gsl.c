/* The calls of test_catalog.py, made of GSL directly. Prints each result in a form that loses
   nothing. */
#include <gsl/gsl_integration.h>
#include <gsl/gsl_min.h>
#include <gsl/gsl_multimin.h>
#include <gsl/gsl_odeiv2.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_roots.h>
#include <gsl/gsl_sf.h>
#include <gsl/gsl_spline.h>
#include <stdio.h>

static double bell(double x, void *user) { (void)user; return 1 / (1 + x * x); }
static double cubic(double x, void *user) { (void)user; return x * x * x - 2; }
static double valley(double x, void *user) { (void)user; return (x - 2) * (x - 2) + 1; }

static double bowl(const gsl_vector *x, void *user)
{
    (void)user;
    double a = gsl_vector_get(x, 0) - 1, b = gsl_vector_get(x, 1) + 2;
    return a * a + 3 * (b * b);
}

static int spring(double t, const double *y, double *dydt, void *user)
{
    (void)t, (void)user;
    dydt[0] = y[1];
    dydt[1] = -y[0];
    return 0;
}

static void print(const char *name, double value) { printf("%s %a\n", name, value); }

static void integrate(double a, double b)
{
    gsl_function f = {bell, NULL};
    double value, error;
    gsl_integration_workspace *work = gsl_integration_workspace_alloc(100);
    gsl_integration_qags(&f, a, b, 0, 1e-10, 100, work, &value, &error);
    print("integral", value), print("error", error);
    gsl_integration_qagi(&f, 0, 1e-10, 100, work, &value, &error);
    print("whole", value);
    gsl_integration_qagiu(&f, a, 0, 1e-10, 100, work, &value, &error);
    print("above", value);
    gsl_integration_qagil(&f, b, 0, 1e-10, 100, work, &value, &error);
    print("below", value);
    gsl_integration_workspace_free(work);
}

static void root(void)
{
    gsl_function f = {cubic, NULL};
    gsl_root_fsolver *solver = gsl_root_fsolver_alloc(gsl_root_fsolver_brent);
    gsl_root_fsolver_set(solver, &f, 0, 2);
    int steps = 0, status;
    do {
        steps++;
        gsl_root_fsolver_iterate(solver);
        status = gsl_root_test_interval(gsl_root_fsolver_x_lower(solver),
                                        gsl_root_fsolver_x_upper(solver), 0, 1e-12);
    } while (status == GSL_CONTINUE);
    print("root", gsl_root_fsolver_root(solver)), print("root_steps", steps);
    gsl_root_fsolver_free(solver);
}

static void minimum(void)
{
    gsl_function f = {valley, NULL};
    gsl_min_fminimizer *minimizer = gsl_min_fminimizer_alloc(gsl_min_fminimizer_brent);
    gsl_min_fminimizer_set(minimizer, &f, 1, 0, 5);
    int status;
    do {
        gsl_min_fminimizer_iterate(minimizer);
        status = gsl_min_test_interval(gsl_min_fminimizer_x_lower(minimizer),
                                       gsl_min_fminimizer_x_upper(minimizer), 1e-6, 0);
    } while (status == GSL_CONTINUE);
    print("minimum", gsl_min_fminimizer_x_minimum(minimizer));
    gsl_min_fminimizer_free(minimizer);
}

static void minimize(void)
{
    double from[2] = {5, 5}, step[2] = {1, 1};
    gsl_vector_view x = gsl_vector_view_array(from, 2), s = gsl_vector_view_array(step, 2);
    gsl_multimin_function f = {bowl, 2, NULL};
    gsl_multimin_fminimizer *minimizer =
        gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, 2);
    gsl_multimin_fminimizer_set(minimizer, &f, &x.vector, &s.vector);
    int status;
    do {
        gsl_multimin_fminimizer_iterate(minimizer);
        status = gsl_multimin_test_size(gsl_multimin_fminimizer_size(minimizer), 1e-6);
    } while (status == GSL_CONTINUE);
    print("least_x", gsl_vector_get(gsl_multimin_fminimizer_x(minimizer), 0));
    print("least_y", gsl_vector_get(gsl_multimin_fminimizer_x(minimizer), 1));
    gsl_multimin_fminimizer_free(minimizer);
}

static void ode(void)
{
    gsl_odeiv2_system system = {spring, NULL, 2, NULL};
    gsl_odeiv2_driver *driver =
        gsl_odeiv2_driver_alloc_y_new(&system, gsl_odeiv2_step_rk8pd, 2 * 1e-4, 0, 1e-10);
    double t = 0, y[2] = {1, 0};
    gsl_odeiv2_driver_apply(driver, &t, 1, y);
    gsl_odeiv2_driver_apply(driver, &t, 2, y);
    print("spring", y[0]), print("speed", y[1]);
    gsl_odeiv2_driver_free(driver);
}

int main(void)
{
    integrate(0, 3);
    root();
    minimum();
    minimize();
    ode();
    double x[4] = {0, 1, 2, 4}, y[4] = {1, 3, 2, 5};
    gsl_spline *spline = gsl_spline_alloc(gsl_interp_cspline, 4);
    gsl_spline_init(spline, x, y, 4);
    print("spline", gsl_spline_eval(spline, 1.5, NULL));
    print("slope", gsl_spline_eval_deriv(spline, 1.5, NULL));
    gsl_spline_free(spline);
    print("airy_ai", gsl_sf_airy_Ai(0.7, GSL_PREC_DOUBLE)), print("dawson", gsl_sf_dawson(0.7));
    print("airy_bi", gsl_sf_airy_Bi(0.7, GSL_PREC_DOUBLE)), print("debye_1", gsl_sf_debye_1(0.7));
    print("dilog", gsl_sf_dilog(0.7)), print("erf", gsl_sf_erf(0.7));
    print("ellint_K", gsl_sf_ellint_Kcomp(0.7, GSL_PREC_DOUBLE));
    print("ellint_E", gsl_sf_ellint_Ecomp(0.7, GSL_PREC_DOUBLE));
    print("erfc", gsl_sf_erfc(0.7)), print("expint_E1", gsl_sf_expint_E1(0.7));
    print("gamma", gsl_sf_gamma(0.7)), print("lngamma", gsl_sf_lngamma(0.7));
    print("psi", gsl_sf_psi(0.7)), print("synchrotron_1", gsl_sf_synchrotron_1(0.7));
    print("zeta", gsl_sf_zeta(0.7)), print("Si", gsl_sf_Si(0.7)), print("Ci", gsl_sf_Ci(0.7));
    print("bessel_J", gsl_sf_bessel_Jnu(1.5, 0.7)), print("bessel_Y", gsl_sf_bessel_Ynu(1.5, 0.7));
    print("bessel_I", gsl_sf_bessel_Inu(1.5, 0.7)), print("bessel_K", gsl_sf_bessel_Knu(1.5, 0.7));
    print("gamma_inc_P", gsl_sf_gamma_inc_P(1.5, 0.7));
    print("gamma_inc_Q", gsl_sf_gamma_inc_Q(1.5, 0.7));
    gsl_rng *r = gsl_rng_alloc(gsl_rng_mt19937);
#define DRAW(name, draw) gsl_rng_set(r, 7), print(name, draw)
    DRAW("flat", gsl_ran_flat(r, 2, 3)), DRAW("gaussian", gsl_ran_gaussian(r, 2));
    DRAW("exponential", gsl_ran_exponential(r, 2)), DRAW("random_gamma", gsl_ran_gamma(r, 2, 3));
    DRAW("beta", gsl_ran_beta(r, 2, 3)), DRAW("weibull", gsl_ran_weibull(r, 2, 3));
    DRAW("poisson", gsl_ran_poisson(r, 2)), DRAW("student", gsl_ran_tdist(r, 2));
    gsl_rng_free(r);
    return 0;
}
