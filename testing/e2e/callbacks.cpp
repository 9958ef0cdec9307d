// Functions and lambdas that a remote function calls: `callbacks SERVER` serves callbacks.idl.
#include "farcall.hpp"

#include <cstdio>

static int last;

static void report(std::int32_t step, std::int32_t) { last = step; }

static void refuse(double, double *) { throw std::runtime_error("no value"); }

/* Whether a call fails with the exception of its callback. */
template <class F> static bool is_told(const farcall::Function &evaluate, F &&callback) {
  std::vector<double> values(4);
  try {
    evaluate(4, values, std::forward<F>(callback));
  } catch (const farcall::Error &error) {
    return error.status() == FARCALL_CANCELLED &&
           std::string_view(error.what()).find("no value") != std::string_view::npos;
  }
  return false;
}

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
  double factor = 4;
  int calls = 0;
  evaluate(4, values, [&factor, &calls](double x, double *y) { *y = factor * x, calls++; });
  if (values[3] != 12 || calls != 4)
    return 5;
  auto counts = [calls = 0](const double &x, double *y) mutable { *y = x + ++calls; };
  evaluate.async(4, values, counts).get();
  if (values[3] != 7)
    return 6;
  if (!is_told(evaluate, [&](double, double *) { throw std::runtime_error("no value"); }))
    return 7;
  if (!is_told(evaluate, [](double, double *) { throw std::runtime_error("no value"); }))
    return 8;
  if (!is_told(evaluate, refuse) || !is_told(evaluate, &refuse))
    return 11;
  try {
    farcall::Server nowhere("");
    return 9;
  } catch (const std::exception &error) {
    if (std::string_view(error.what()).find("the host is missing") == std::string_view::npos)
      return 10;
  }
  try {
    const char *none = nullptr;
    evaluate(4, none, report);
    return 12;
  } catch (const farcall::Error &error) {
    if (error.status() != FARCALL_ARGUMENT)
      return 13;
  }
  try {
    void (*none)(double, double *) = nullptr;
    evaluate(4, values, none);
    return 14;
  } catch (const farcall::Error &error) {
    if (error.status() != FARCALL_ARGUMENT)
      return 15;
  }
  farcall::Server other(argv[1]), moved(std::move(other));
  farcall::Future kept = evaluate.async(4, values, counts);
  other.cancel_all();
  kept.get();
  try {
    evaluate(4, values, 7);
  } catch (const farcall::Error &error) {
    std::puts(error.what());
    return 0;
  }
  return 4;
}
