/* The boxes that a branch-and-bound method has not decided yet, the best one first. */
#ifndef BRANCH_H
#define BRANCH_H

#include <stdlib.h>
#include <string.h>

typedef struct {
  int variables, count, room;
  double *lower; /* of each box */
  double *boxes; /* boxes[room][variables][2] */
} open_boxes;

static inline double *open_box(const open_boxes *open, int k) {
  return open->boxes + 2 * (size_t)k * open->variables;
}

static inline void open_add(open_boxes *open, double lower, const double *box) {
  const size_t bytes = 2 * (size_t)open->variables * sizeof *box;
  if (open->count == open->room) {
    open->room = 2 * open->room + 64;
    open->lower = realloc(open->lower, open->room * sizeof *open->lower);
    open->boxes = realloc(open->boxes, open->room * bytes);
    if (open->lower == NULL || open->boxes == NULL)
      abort();
  }
  open->lower[open->count] = lower;
  memcpy(open_box(open, open->count++), box, bytes);
}

/* The number of the box with the least lower bound, or -1. */
static inline int open_best(const open_boxes *open) {
  int best = open->count - 1, k;
  for (k = 0; k < open->count; k++)
    if (open->lower[k] < open->lower[best])
      best = k;
  return best;
}

/* Takes a box out and cuts its longest edge in the middle. */
static inline void open_split(open_boxes *open, int k, double *left, double *right) {
  const size_t bytes = 2 * (size_t)open->variables * sizeof *left;
  int longest = 0, i;
  memcpy(left, open_box(open, k), bytes);
  memcpy(right, left, bytes);
  open->lower[k] = open->lower[--open->count];
  memmove(open_box(open, k), open_box(open, open->count), bytes);
  for (i = 0; i < open->variables; i++)
    if (left[2 * i + 1] - left[2 * i] > left[2 * longest + 1] - left[2 * longest])
      longest = i;
  left[2 * longest + 1] = right[2 * longest] = (left[2 * longest] + left[2 * longest + 1]) / 2;
}

/* Removes the boxes without a point below `limit`. */
static inline void open_prune(open_boxes *open, double limit) {
  int k = 0;
  while (k < open->count) {
    if (open->lower[k] < limit) {
      k++;
    } else {
      open->lower[k] = open->lower[--open->count];
      memmove(open_box(open, k), open_box(open, open->count),
              2 * (size_t)open->variables * sizeof(double));
    }
  }
}

static inline void open_free(open_boxes *open) {
  free(open->lower);
  free(open->boxes);
}

#endif
