/* Bounds of a bilinear eigenvalue problem: LAPACK gives eigenvalues, and DSDP solves the
 * relaxation, a semidefinite program. */
#include "bmi.h"
#include "branch.h"

#include <dsdp/dsdp5.h>
#include <math.h>

/* The lower bound looks at all corners of the box of x. */
enum { MOST_X = 16 };

extern void dsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda,
                   double *w, double *work, const int *lwork, int *info);

/* A problem over the box from -1 to 1 in every variable. */
typedef struct {
  int nx, ny, m;
  double *g; /* g[nx + 1][ny + 1][m][m] */
} problem;

static void *allocate(size_t count, size_t size) {
  void *memory = calloc(count, size);
  if (memory == NULL)
    abort();
  return memory;
}

static problem new_problem(int nx, int ny, int m) {
  problem p = {nx, ny, m, allocate((size_t)(nx + 1) * (ny + 1) * m * m, sizeof(double))};
  return p;
}

static double *matrix(const problem *p, int i, int j) {
  return p->g + (size_t)(i * (p->ny + 1) + j) * p->m * p->m;
}

static void add(int m, double factor, const double *from, double *to) {
  int k;
  for (k = 0; k < m * m; k++)
    to[k] += factor * from[k];
}

/* x = center + half * u. The matrices of the same problem in u and v. */
static void scale(const problem *from, const double *center, const double *half, problem *to) {
  int i, j, a, b;
  for (i = 0; i <= from->nx; i++)
    for (j = 0; j <= from->ny; j++)
      for (a = 0; a <= (i > 0); a++)
        for (b = 0; b <= (j > 0); b++) {
          /* x_i is the center's part, which is constant, or the part of u_i. */
          double x = i == 0 ? 1 : a ? half[i - 1] : center[i - 1];
          double y = j == 0 ? 1 : b ? half[from->nx + j - 1] : center[from->nx + j - 1];
          add(from->m, x * y, matrix(from, i, j), matrix(to, a ? i : 0, b ? j : 0));
        }
}

/* The eigenvalues of `a`, the least first; `a` becomes its eigenvectors if `vectors`. */
static void eigenvalues(int m, double *a, double *values, int vectors) {
  int room = 8 * m, info;
  double *work = allocate(room, sizeof *work);
  dsyev_(vectors ? "V" : "N", "U", &m, a, &m, values, work, &room, &info);
  free(work);
}

/* The largest eigenvalue of F(u, v). */
static double evaluate(const problem *p, const double *u, const double *v) {
  double *values = allocate(p->m, sizeof *values), largest;
  double *at = allocate((size_t)p->m * p->m, sizeof *at);
  int i, j;
  for (i = 0; i <= p->nx; i++)
    for (j = 0; j <= p->ny; j++)
      add(p->m, (i ? u[i - 1] : 1) * (j ? v[j - 1] : 1), matrix(p, i, j), at);
  eigenvalues(p->m, at, values, 0);
  largest = values[p->m - 1];
  free(at);
  free(values);
  return largest;
}

/* The variables of the relaxation: 1 is the eigenvalue, then u, v, and w_ij in the place of
 * u_i v_j. */
static int variable(const problem *p, int i, int j) {
  if (i == 0)
    return 1 + p->nx + j;
  return j == 0 ? 1 + i : 1 + p->nx + p->ny + (i - 1) * p->ny + j;
}

/* The convex envelope of w = u v: w >= u + v - 1, w >= -u - v - 1, w <= u - v + 1 and
 * w <= v - u + 1. DSDP wants columns of A with A y <= c; column 0 is c. */
static void set_envelope(LPCone cone, const problem *p, int variables, int **starts, int **rows,
                         double **values) {
  static const double sign[4][2] = {{1, 1}, {-1, -1}, {-1, 1}, {1, -1}};
  const int count = 4 * p->nx * p->ny;
  int i, j, k, column, at = 0;
  *starts = allocate(variables + 2, sizeof **starts);
  *rows = allocate(4 * (size_t)count, sizeof **rows);
  *values = allocate(4 * (size_t)count, sizeof **values);
  for (column = 0; column <= variables; column++) {
    (*starts)[column] = at;
    for (i = 1; i <= p->nx; i++)
      for (j = 1; j <= p->ny; j++)
        for (k = 0; k < 4; k++) {
          double value = column == 0                    ? 1
                         : column == variable(p, i, 0) ? sign[k][0]
                         : column == variable(p, 0, j) ? sign[k][1]
                         : column == variable(p, i, j) ? -sign[k][0] * sign[k][1]
                                                       : 0;
          if (value != 0) {
            (*rows)[at] = 4 * ((i - 1) * p->ny + j - 1) + k;
            (*values)[at++] = value;
          }
        }
  }
  (*starts)[variables + 1] = at;
  LPConeSetData(cone, count, *starts, *rows, *values);
}

/* Solves the relaxation: the least t with t I - G(u, v, w) positive semidefinite. Gives the point,
 * and the multiplier X of the matrix inequality. Returns whether DSDP found them. */
static int relax(const problem *p, double *u, double *v, double *x) {
  const int variables = 1 + p->nx + p->ny + p->nx * p->ny, m = p->m, packed = m * (m + 1) / 2;
  double *data = allocate((size_t)(variables + 1) * packed, sizeof *data);
  double *y = allocate(variables, sizeof *y), *multiplier, *values = NULL;
  int i, j, k, l, size, *starts = NULL, *rows = NULL, found;
  DSDPTerminationReason reason;
  DSDP solver;
  SDPCone cone;
  BCone bounds;
  LPCone envelope;

  if (DSDPCreate(variables, &solver))
    abort();
  DSDPCreateSDPCone(solver, 1, &cone);
  DSDPCreateBCone(solver, &bounds);
  SDPConeSetBlockSize(cone, 0, m);
  DSDPSetDualObjective(solver, 1, -1);
  SDPConeSetIdentity(cone, 0, 1, m, -1);
  for (i = 0; i <= p->nx; i++)
    for (j = 0; j <= p->ny; j++) {
      int of = i + j == 0 ? 0 : variable(p, i, j);
      double *lower = data + (size_t)of * packed;
      for (k = 0; k < m; k++)
        for (l = 0; l <= k; l++)
          lower[k * (k + 1) / 2 + l] = (of ? 1 : -1) * matrix(p, i, j)[k * m + l];
      SDPConeSetADenseVecMat(cone, 0, of, m, 1, lower, packed);
      if (of && i * j == 0) {
        BConeSetLowerBound(bounds, of, -1);
        BConeSetUpperBound(bounds, of, 1);
      }
    }
  if (p->nx * p->ny > 0) {
    DSDPCreateLPCone(solver, &envelope);
    set_envelope(envelope, p, variables, &starts, &rows, &values);
  }
  DSDPSetGapTolerance(solver, 1e-6);
  found = DSDPSetup(solver) == 0 && DSDPSolve(solver) == 0 && DSDPComputeX(solver) == 0 &&
          DSDPStopReason(solver, &reason) == 0 && reason == DSDP_CONVERGED &&
          DSDPGetY(solver, y, variables) == 0;
  if (found) {
    for (i = 0; i < p->nx + p->ny; i++)
      *(i < p->nx ? u + i : v + i - p->nx) = fmax(-1, fmin(1, y[1 + i]));
    SDPConeGetXArray(cone, 0, &multiplier, &size);
    for (k = 0; x != NULL && k < m; k++)
      for (l = 0; l <= k; l++)
        x[k * m + l] = x[l * m + k] = multiplier[k * (k + 1) / 2 + l];
  }
  DSDPDestroy(solver);
  free(starts);
  free(rows);
  free(values);
  free(data);
  free(y);
  return found;
}

/* Makes X positive semidefinite with trace 1: DSDP's is so only nearly. */
static void project(int m, double *x) {
  double *vectors = allocate((size_t)m * m, sizeof *vectors);
  double *values = allocate(m, sizeof *values), trace = 0;
  int i, j, k;
  memcpy(vectors, x, (size_t)m * m * sizeof *x);
  eigenvalues(m, vectors, values, 1);
  memset(x, 0, (size_t)m * m * sizeof *x);
  for (k = 0; k < m; k++)
    trace += fmax(values[k], 0);
  for (k = 0; k < m; k++)
    for (i = 0; values[k] > 0 && i < m; i++)
      for (j = 0; j < m; j++)
        x[i * m + j] += values[k] / trace * vectors[k * m + i] * vectors[k * m + j];
  free(vectors);
  free(values);
}

/* For every X with trace 1 that is positive semidefinite, no eigenvalue in the box is less than the
 * least <X, G(u, v)>. That function is bilinear, so a corner of the box has its least value. This
 * holds however well DSDP has solved the relaxation. */
static double certified(const problem *p, const double *x) {
  double c[MOST_X + 1], lower = INFINITY;
  double *by = allocate((size_t)(p->nx + 1) * (p->ny + 1), sizeof *by);
  int i, j, k, corner;
  for (i = 0; i <= p->nx; i++)
    for (j = 0; j <= p->ny; j++)
      for (k = 0; k < p->m * p->m; k++)
        by[i * (p->ny + 1) + j] += x[k] * matrix(p, i, j)[k];
  for (corner = 0; corner < 1 << p->nx; corner++) {
    double value = 0;
    for (i = 0; i <= p->nx; i++)
      c[i] = i == 0 || corner >> (i - 1) & 1 ? 1 : -1;
    for (j = 0; j <= p->ny; j++) {
      double sum = 0;
      for (i = 0; i <= p->nx; i++)
        sum += c[i] * by[i * (p->ny + 1) + j];
      value += j == 0 ? sum : -fabs(sum);
    }
    lower = fmin(lower, value);
  }
  free(by);
  return lower;
}

/* One half of an alternating step: the best u for this v, which is a convex problem. */
static void best_u(const problem *p, double *u, const double *v) {
  problem line = new_problem(p->nx, 0, p->m);
  int i, j;
  for (i = 0; i <= p->nx; i++)
    for (j = 0; j <= p->ny; j++)
      add(p->m, j ? v[j - 1] : 1, matrix(p, i, j), matrix(&line, i, 0));
  relax(&line, u, NULL, NULL);
  free(line.g);
}

static void best_v(const problem *p, const double *u, double *v) {
  problem line = new_problem(0, p->ny, p->m);
  int i, j;
  for (i = 0; i <= p->nx; i++)
    for (j = 0; j <= p->ny; j++)
      add(p->m, i ? u[i - 1] : 1, matrix(p, i, j), matrix(&line, 0, j));
  relax(&line, NULL, v, NULL);
  free(line.g);
}

static void bound_box(const problem *whole, const double *box, double *lower, double *upper,
                      double *point) {
  const int nx = whole->nx, n = nx + whole->ny, m = whole->m;
  double *center = allocate(4 * (size_t)n, sizeof *center), *half = center + n;
  double *now = center + 2 * n, *best = center + 3 * n, value;
  double *x = allocate((size_t)m * m, sizeof *x);
  problem p = new_problem(nx, whole->ny, m);
  int i, step;

  for (i = 0; i < n; i++) {
    center[i] = (box[2 * i] + box[2 * i + 1]) / 2;
    half[i] = (box[2 * i + 1] - box[2 * i]) / 2;
  }
  scale(whole, center, half, &p);
  if (!relax(&p, now, now + nx, x))
    for (i = 0; i < m; i++)
      x[i * m + i] = 1;
  project(m, x);
  *lower = certified(&p, x);
  *upper = INFINITY;
  for (step = 0; step < 3; step++) {
    if (step == 1)
      best_v(&p, now, now + nx);
    else if (step == 2)
      best_u(&p, now, now + nx);
    value = evaluate(&p, now, now + nx);
    if (value < *upper) {
      *upper = value;
      memcpy(best, now, n * sizeof *best);
    }
  }
  for (i = 0; i < n; i++)
    point[i] = center[i] + half[i] * best[i];
  free(center);
  free(x);
  free(p.g);
}

void bmi_bound(int32_t count, int32_t nx, int32_t ny, int32_t m, const double *f,
               const double *boxes, double *lower, double *upper, double *points, int32_t *info) {
  const problem whole = {nx, ny, m, (double *)f};
  const int n = nx + ny;
  int k;
  *info = nx < 1 || nx > MOST_X || ny < 1 || m < 1 ? -1 : 0;
  for (k = 0; *info == 0 && k < count; k++)
    bound_box(&whole, boxes + 2 * (size_t)k * n, lower + k, upper + k, points + (size_t)k * n);
}

void bmi_solve(int32_t nx, int32_t ny, int32_t m, const double *f, const double *box,
               double tolerance, int32_t most, double *lower, double *upper, double *point,
               int32_t *bounded, int32_t *info) {
  const int n = nx + ny;
  open_boxes open = {n, 0, 0, NULL, NULL};
  double *halves = allocate(5 * (size_t)n, sizeof *halves), *tried = halves + 4 * n;
  double low[2], up;
  int k;

  bmi_bound(1, nx, ny, m, f, box, low, upper, point, info);
  *bounded = 1;
  open_add(&open, low[0], box);
  while (*info == 0 && open.count > 0 && *upper - open.lower[open_best(&open)] > tolerance) {
    if (*bounded + 2 > most) {
      *info = 1;
      break;
    }
    open_split(&open, open_best(&open), halves, halves + 2 * n);
    for (k = 0; k < 2 && *info == 0; k++) {
      bmi_bound(1, nx, ny, m, f, halves + 2 * n * k, low, &up, tried, info);
      open_add(&open, low[0], halves + 2 * n * k);
      if (up < *upper) {
        *upper = up;
        memcpy(point, tried, n * sizeof *point);
      }
    }
    *bounded += 2;
    open_prune(&open, *upper - tolerance);
  }
  *lower = open.count > 0 ? fmin(open.lower[open_best(&open)], *upper) : *upper - tolerance;
  open_free(&open);
  free(halves);
}

/* A number between -1 and 1 (SplitMix64). */
static double next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return (double)((z ^ z >> 31) >> 11) / ((uint64_t)1 << 52) - 1;
}

void bmi_example(int32_t seed, int32_t nx, int32_t ny, int32_t m, double *f) {
  uint64_t state = (uint64_t)seed;
  int k, i, j;
  for (k = 0; k < (nx + 1) * (ny + 1); k++)
    for (i = 0; i < m; i++)
      for (j = 0; j <= i; j++)
        f[(k * m + i) * m + j] = f[(k * m + j) * m + i] = next(&state);
}
