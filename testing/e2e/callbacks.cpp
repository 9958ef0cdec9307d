// Functions and lambdas that a remote function calls: `callbacks SERVER` serves callbacks.idl.
#include "farcall.hpp"

#include <cstdio>

static int last;

static void report(std::int32_t step, std::int32_t) { last = step; }

int main(int, char **argv) {
  farcall::Server server(argv[1]);
  std::int32_t seen = 0;
  server.function("progress")(5, farcall::out(seen), report);
  if (seen != 5 || last != 5)
    return 1;
  std::vector<double> values(4);
  const farcall::Function evaluate = server.function("evaluate");
  evaluate(4, values, [](double x, double *y) { *y = 2 * x; });
  if (values[3] != 6)
    return 2;
  farcall::Future future = evaluate.async(4, values, [](double x, double *y) { *y = 3 * x; });
  future.get();
  if (values[3] != 9)
    return 3;
  try {
    evaluate(4, values, 7);
  } catch (const farcall::Error &error) {
    std::puts(error.what());
    return 0;
  }
  return 4;
}
