// The rod of rod.c in C++. The server is the first argument, or FARCALL_SERVER.
#include "farcall.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

int main(int argc, char **argv) try {
  constexpr int n = 200;
  constexpr double h = 1.0 / (n + 1);
  const auto exact = [](int i) { return std::sin(std::numbers::pi * (i + 1) * h); };
  std::vector<double> a(n * n), u(n);
  std::vector<std::int32_t> pivots(n);
  std::int32_t info;

  for (int i = 0; i < n; i++) {
    a[i * n + i] = 2;
    if (i > 0)
      a[i * n + i - 1] = a[(i - 1) * n + i] = -1;
    u[i] = h * h * std::numbers::pi * std::numbers::pi * exact(i);
  }
  const auto server = argc > 1 ? farcall::Server(argv[1]) : farcall::Server();
  server.call("lapack/dgesv", n, 1, a, n, pivots, u, n, farcall::out(info));
  double error = 0;
  for (int i = 0; i < n; i++)
    error = std::max(error, std::abs(u[i] - exact(i)));
  std::printf("%d points: info %d, largest error %.3e\n", n, info, error);
} catch (const farcall::Error &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
