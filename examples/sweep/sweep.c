/* A parameter sweep with GridRPC: the eigenvalues of many vibrating chains, on all servers that are
 * named, each server with a new chain as soon as it has done one.
 *
 *     sweep farcall://host:3717 farcall://other:3717
 *
 * A chain of N masses between two walls, with springs of stiffness 1 and one spring of stiffness k
 * in the middle: its lowest frequency as a function of k. */
#include "farcall.h"
#include "grpc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 64, CHAINS = 16, MOST_SERVERS = 8 };

typedef struct {
  double stiffness, lowest;
  double matrix[N * N], eigenvalues[N];
  int32_t info;
  int server;
  grpc_sessionid_t session;
} chain_t;

static void check(grpc_error_t error) {
  if (error == GRPC_NO_ERROR)
    return;
  fprintf(stderr, "%s: %s\n", grpc_error_string(error), farcall_error_message());
  exit(1);
}

static void build(chain_t *chain) {
  int i;
  memset(chain->matrix, 0, sizeof chain->matrix);
  for (i = 0; i < N; i++) {
    double left = i == N / 2 ? chain->stiffness : 1;
    double right = i == N / 2 - 1 ? chain->stiffness : 1;
    chain->matrix[i * N + i] = left + right;
    if (i > 0)
      chain->matrix[i * N + i - 1] = chain->matrix[(i - 1) * N + i] = -left;
  }
}

static void start(chain_t *chain, grpc_function_handle_t *handles, int server) {
  chain->server = server;
  build(chain);
  check(grpc_call_async(&handles[server], &chain->session, 'N', 'U', N, chain->matrix, N,
                        chain->eigenvalues, 34 * N, &chain->info));
}

int main(int argc, char **argv) {
  static chain_t chains[CHAINS];
  grpc_function_handle_t handles[MOST_SERVERS];
  grpc_sessionid_t ended;
  int servers = argc - 1, next = 0, i;

  if (servers < 1 || servers > MOST_SERVERS) {
    fprintf(stderr, "usage: %s SERVER...\n", argv[0]);
    return 2;
  }
  check(grpc_initialize(NULL));
  for (i = 0; i < servers; i++)
    check(grpc_function_handle_init(&handles[i], argv[i + 1], "lapack/dsyev"));
  for (i = 0; i < CHAINS; i++)
    chains[i].stiffness = 0.25 * (i + 1);
  while (next < CHAINS && next < servers) {
    start(&chains[next], handles, next);
    next++;
  }
  for (;;) {
    check(grpc_wait_any(&ended));
    if (ended == GRPC_SESSIONID_VOID)
      break;
    for (i = 0; chains[i].session != ended; i++)
      continue;
    chains[i].lowest = sqrt(chains[i].eigenvalues[0]);
    if (next < CHAINS)
      start(&chains[next++], handles, chains[i].server);
  }
  for (i = 0; i < CHAINS; i++)
    printf("stiffness %.2f: lowest frequency %.6f\n", chains[i].stiffness, chains[i].lowest);
  check(grpc_finalize());
  return 0;
}
