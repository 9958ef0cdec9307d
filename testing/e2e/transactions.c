/* Transactions from C: `transactions URL URL`, two servers with the functions of test_transactions.py. */
#include "farcall.h"
#include "ninf.h"

#include <stdio.h>
#include <string.h>

enum { N = 20000 };
static char a[N], b[N], c[N], d[N];
static int failures;

static void expect(int line, const char *what, int right) {
  if (right)
    return;
  failures++;
  fprintf(stderr, "line %d: not %s: %s\n", line, what, farcall_error_message());
}
#define EXPECT(truth) expect(__LINE__, #truth, (truth))

static int holds(const char *bytes, int value) {
  for (int i = 0; i < N; i++)
    if (bytes[i] != value)
      return 0;
  return 1;
}

static void with_servers(char **urls) {
  const farcall_server *servers[] = {farcall_connect(urls[0]), farcall_connect(urls[1])};
  farcall_server *server = (farcall_server *)servers[0];
  farcall_report report;
  int64_t n = N;

  memset(a, 1, N);
  EXPECT(farcall_transaction_end(NULL) == FARCALL_ARGUMENT);
  EXPECT(farcall_transaction_begin(servers, 2) == FARCALL_OK);
  EXPECT(farcall_transaction_begin(servers, 2) == FARCALL_ARGUMENT);
  EXPECT(farcall_call(server, "copy", b, a, n) == FARCALL_OK);
  EXPECT(farcall_call(server, "copy", c, b, n) == FARCALL_OK);
  EXPECT(farcall_call(server, "fill", b, 7, n) == FARCALL_OK);
  EXPECT(farcall_call(server, "copy", d, c, n) == FARCALL_OK);
  EXPECT(farcall_call_async(server, "copy", d, c, n) == 0);
  EXPECT(farcall_transaction_discard(c, N) == FARCALL_OK);
  EXPECT(farcall_transaction_draw("graph.svg") == FARCALL_OK);
  EXPECT(holds(d, 0));
  EXPECT(farcall_transaction_end(&report) == FARCALL_OK);
  EXPECT(holds(b, 7) && holds(c, 0) && holds(d, 1));
  EXPECT(report.calls == 4 && report.servers >= 1);
  EXPECT(report.sent_bytes == N && report.returned_bytes <= 2 * N);

  EXPECT(farcall_transaction_begin(NULL, 0) == FARCALL_OK);
  EXPECT(farcall_call(server, "fill", b, 1, n) == FARCALL_OK);
  EXPECT(farcall_call(server, "crash", b, n) == FARCALL_OK);
  EXPECT(farcall_transaction_end(NULL) == FARCALL_LIBRARY);
  EXPECT(strstr(farcall_error_message(), "call 2 of the transaction, test/crash") != NULL);

  EXPECT(farcall_transaction_begin(NULL, 0) == FARCALL_OK);
  EXPECT(farcall_call(server, "fill", d, 3, n) == FARCALL_OK);
  EXPECT(farcall_transaction_cancel() == FARCALL_OK);
  EXPECT(holds(d, 1));
  farcall_disconnect(server);
  farcall_disconnect((farcall_server *)servers[1]);
}

static void with_the_names_of_ninf(char **urls) {
  char copy[200], fill[200];
  int64_t n = N;

  snprintf(copy, sizeof copy, "%s/copy", urls[0]);
  snprintf(fill, sizeof fill, "%s/fill", urls[1]);
  memset(a, 5, N);
  EXPECT(Ninf_transaction_end() == NINF_ERROR);
  EXPECT(Ninf_transaction_begin() == NINF_OK);
  EXPECT(Ninf_call(copy, b, a, n) == NINF_OK);
  EXPECT(Ninf_call(copy, c, b, n) == NINF_OK);
  EXPECT(Ninf_call(fill, b, 6, n) == NINF_OK);
  EXPECT(Ninf_transaction_end() == NINF_OK);
  EXPECT(holds(b, 6) && holds(c, 5));
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  with_servers(argv + 1);
  with_the_names_of_ninf(argv + 1);
  return failures != 0;
}
