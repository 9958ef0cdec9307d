/* A call of a group whose results are cut on their way runs again from the same array: `group HOST
 * PORT`. */
#include "ninf.h"

#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 2000000 };

int main(int argc, char **argv) {
  double *x = calloc(COUNT, sizeof *x);
  Ninf_group_t *group;
  int i, wrong = 0;

  if (argc != 3 || x == NULL)
    return 2;
  Ninf_set_server(argv[1], argv[2]);
  group = Ninf_group_init("cut/increase");
  if (group == NULL || Ninf_group_call_async(group, COUNT, x) == NINF_ERROR ||
      Ninf_group_wait_all(group) != NINF_OK) {
    Ninf_perror("group");
    return 1;
  }
  for (i = 0; i < COUNT; i++)
    wrong += x[i] != 1;
  printf("%d wrong\n", wrong);
  free(x);
  return wrong != 0;
}
