/* Branch and bound over servers, as bmi.py, in C:
 *
 *     client SERVER [CALLS [GROUP]]
 *
 * Each round makes at most CALLS calls at the same time, each with at most GROUP boxes. SERVER can
 * be meta://HOST:PORT, which spreads the calls over all servers. */
#include "branch.h"
#include "farcall.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

enum { NX = 2, NY = 3, M = 10, N = NX + NY, MOST_CALLS = 64, MOST_GROUP = 64 };

static const double TOLERANCE = 0.1;

/* The arrays of one call. */
typedef struct {
  int32_t count, info;
  double boxes[MOST_GROUP][N][2];
  double lower[MOST_GROUP], upper[MOST_GROUP], points[MOST_GROUP][N];
} call_t;

static void check(int good) {
  if (good)
    return;
  fprintf(stderr, "%s\n", farcall_error_message());
  exit(1);
}

/* Cuts the best boxes, and fills calls with the halves. Returns the number of boxes. */
static int branch(open_boxes *open, double limit, call_t *calls, int most, int group) {
  double halves[2][N][2];
  int boxes = 0, best, k;
  for (k = 0; k < most; k++)
    calls[k].count = 0;
  while (boxes + 2 <= most * group && (best = open_best(open)) >= 0 && open->lower[best] < limit) {
    open_split(open, best, &halves[0][0][0], &halves[1][0][0]);
    for (k = 0; k < 2; k++, boxes++) {
      call_t *call = &calls[boxes % most];
      memcpy(call->boxes[call->count++], halves[k], sizeof halves[k]);
    }
  }
  return boxes;
}

/* Bounds the boxes of all calls at the same time. */
static void bound(farcall_function *function, const double *f, call_t *calls, int most) {
  farcall_session sessions[MOST_CALLS];
  int made = 0, k;
  for (k = 0; k < most; k++) {
    call_t *call = &calls[k];
    if (call->count == 0)
      continue;
    sessions[made] = farcall_invoke_async(function, call->count, NX, NY, M, f, call->boxes,
                                          call->lower, call->upper, call->points, &call->info);
    check(sessions[made++] != 0);
  }
  check(farcall_wait_and(sessions, made, 600) == FARCALL_OK);
}

int main(int argc, char **argv) {
  static double f[NX + 1][NY + 1][M][M];
  static call_t calls[MOST_CALLS];
  const int most = argc > 2 ? atoi(argv[2]) : 4, group = argc > 3 ? atoi(argv[3]) : 4;
  open_boxes open = {N, 0, 0, NULL, NULL};
  double upper = INFINITY, lower, point[N];
  int bounded = 0, boxes = 1, k, i;

  if (argc < 2 || most < 1 || most > MOST_CALLS || group < 2 || group > MOST_GROUP) {
    fprintf(stderr, "usage: %s SERVER [CALLS (1 to 64) [GROUP (2 to 64)]]\n", argv[0]);
    return 2;
  }
  farcall_server *server = farcall_connect(argv[1]);
  check(server != NULL);
  check(farcall_call(server, "bmi/example", 1, NX, NY, M, f) == FARCALL_OK);
  farcall_function *function = farcall_function_of(server, "bmi/bound");
  check(function != NULL);
  for (i = 0; i < N; i++) {
    calls[0].boxes[0][i][0] = -1;
    calls[0].boxes[0][i][1] = 1;
  }
  calls[0].count = 1;
  while (boxes > 0) {
    bound(function, &f[0][0][0][0], calls, most);
    for (k = 0; k < most; k++)
      for (i = 0; i < calls[k].count; i++) {
        open_add(&open, calls[k].lower[i], &calls[k].boxes[i][0][0]);
        if (calls[k].upper[i] < upper) {
          upper = calls[k].upper[i];
          memcpy(point, calls[k].points[i], sizeof point);
        }
      }
    bounded += boxes;
    boxes = branch(&open, upper - TOLERANCE, calls, most, group);
  }
  lower = fmin(open.lower[open_best(&open)], upper);
  printf("least eigenvalue between %.4f and %.4f\nat", lower, upper);
  for (i = 0; i < N; i++)
    printf(" %.4f", point[i]);
  printf("\n%d boxes\n", bounded);
  open_free(&open);
  farcall_disconnect(server);
  return 0;
}
