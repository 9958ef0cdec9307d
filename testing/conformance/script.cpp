// The call script in C++: prints what script.txt says. The server is the first argument.
#include "farcall.hpp"

#include <cmath>
#include <iostream>

namespace {

using namespace std::chrono_literals;

// Numbers times 100, so that every language prints them alike.
void show(const char *name, std::span<const double> values) {
  std::cout << name << ":";
  for (const double value : values)
    std::cout << " " << std::llround(100 * value);
  std::cout << "\n";
}

void arrays(const farcall::Server &server) {
  std::array<double, 6> values;
  std::vector<double> x{1, 2, 3};
  farcall::Memory<double> y(server, 3);
  const std::vector<double> data{0, 1, 2, 3, 4, 5, 6, 7};
  const std::int16_t shorts[] = {10, -20, 30};
  const float floats[] = {1.5F, 2.5F, 3.5F};
  std::int8_t bytes[] = {64, 11, 96};
  std::array<std::int64_t, 3> sums;
  std::array<std::int32_t, 6> a{1, 2, 3, 4, 5, 6};
  double sum;

  server.call("conformance/scalars", 'A', -2, 300000, 5000000000, 1.5F, -0.25, values);
  show("scalars", values);
  y[0] = 10, y[1] = 20, y[2] = 30;
  server.call("conformance/axpy", 3, 2.0, x, y);
  show("axpy", y);
  server.call("conformance/types", 3, shorts, floats, bytes, sums);
  std::cout << "types: " << sums[0] << " " << sums[1] << " " << sums[2] << "\n";
  server.call("conformance/section", 2, 3, a);
  std::cout << "section:";
  for (const int element : a)
    std::cout << " " << element;
  std::cout << "\n";
  server.call("conformance/shrunk", 8, 1, 7, 2, data, farcall::out(sum));
  show("shrunk", {&sum, 1});
}

void kinds(const farcall::Server &server) {
  char text[32];
  std::int32_t length;
  std::vector<std::complex<double>> z{{1, 0}, {0, 2}};
  std::complex<float> conjugate;
  const std::vector<double> unsorted{5, -3, 2, 1};
  std::vector<double> sorted(4), grid(6), x{1, 2, 3}, y{4, 5, 6};
  double dot;

  server.call("conformance/greet", "hello", std::string("world"), 32, text, farcall::out(length));
  std::cout << "greet: " << text << " (" << length << ")\n";
  const std::vector<std::string> words{"one", "", "three"};
  char joined[64];
  server.call("conformance/join", 3, words, "+", joined, farcall::out(length));
  std::cout << "join: " << joined << " (" << length << ")\n";
  try {
    const std::vector<std::string> cut{std::string("a\0b", 3), "c"};
    server.call("conformance/join", 3, cut, "+", joined, farcall::out(length));
    std::cout << "a string with NUL is two: " << joined << "\n";
  } catch (const farcall::Error &) { /* It is refused, as it must be. */
  }
  std::vector<std::string> parts(4), full{"one", "two full", ""};
  server.call("conformance/split", "one,,three,a dozen characters", ',', 4, parts,
              farcall::out(length));
  std::cout << "split: " << parts[0] << "|" << parts[1] << "|" << parts[2] << "|" << parts[3]
            << " (" << length << ")\n";
  server.call("conformance/capitals", 3, 8, full);
  std::cout << "capitals: " << full[0] << "|" << full[1] << "|" << full[2] << "\n";
  server.call("conformance/rotate", 2, std::complex<double>(0, 1), z,
              std::complex<float>(1.5F, 2.5F), farcall::out(conjugate));
  std::cout << "rotate:";
  for (const auto &number : z)
    std::cout << " " << 100 * number.real() << " " << 100 * number.imag();
  std::cout << " / " << 100 * conjugate.real() << " " << 100 * conjugate.imag() << "\n";
  server.call("conformance/sort", 4, unsorted, sorted);
  show("sort", sorted);
  server.call("conformance/dot", 3, x, y, farcall::out(dot));
  show("dot", {&dot, 1});
  server.call("conformance/grid", 3, 2, grid);
  show("grid", grid);
}

const char *word(farcall::Status status) {
  switch (status) {
  case FARCALL_ARGUMENT:
    return "argument";
  case FARCALL_UNKNOWN_FUNCTION:
    return "unknown function";
  case FARCALL_LIBRARY:
    return "library";
  case FARCALL_CANCELLED:
    return "cancelled";
  default:
    return farcall_status_text(status);
  }
}

void failing(const char *what, auto body) {
  std::cout << what << ": ";
  try {
    body();
    std::cout << "done\n";
  } catch (const farcall::Error &error) {
    std::cout << word(error.status()) << "\n";
  }
}

void files(const farcall::Server &server) {
  std::int64_t bytes;

  server.call("conformance/upper", "text", "capitals", "tally", farcall::out(bytes));
  std::cout << "files: " << bytes << " bytes\n";
  failing("no such file", [&] {
    server.call("conformance/upper", "nothing", "new", "tally", farcall::out(bytes));
  });
}

void objects(const farcall::Server &server) {
  const farcall::Object one = server.object("conformance/Counter");
  const farcall::Object other = server.object("Counter");
  std::array<std::int32_t, 3> values;

  one.method("add")(3, farcall::out(values[0]));
  other.method("add")(7, farcall::out(values[1]));
  one.method("add")(7, farcall::out(values[2]));
  std::cout << "objects: " << values[0] << " " << values[1] << " " << values[2] << "\n";
  failing("method of no object",
          [&] { server.call("conformance/Counter.add", 1, farcall::out(values[0])); });
}

void errors(const farcall::Server &server) {
  const std::vector<double> x{1, 2, 3}, y{4, 5, 6}, shorter{1, 2};
  double dot;

  failing("wrong argument",
          [&] { server.call("conformance/dot", 3, shorter, y, farcall::out(dot)); });
  failing("unknown function", [&] { server.call("conformance/nothing"); });
  failing("crash", [&] { server.call("conformance/crash", 1); });
  server.call("conformance/dot", 3, x, y, farcall::out(dot));
  show("after the crash", {&dot, 1});
}

void several(const farcall::Server &server) {
  const farcall::Function nap = server.function("conformance/nap");
  std::array<std::int32_t, 3> slept;
  std::vector<farcall::Future> futures;
  int ended = 0;

  for (std::size_t i = 0; i < slept.size(); i++)
    futures.push_back(nap.async(10 * (i + 1), farcall::out(slept[i])));
  farcall::wait_all(futures);
  std::cout << "several at once: " << slept[0] << " " << slept[1] << " " << slept[2] << "\n";

  futures.clear();
  for (auto &time : slept)
    futures.push_back(nap.async(1, farcall::out(time)));
  while (!futures.empty()) {
    const std::size_t index = farcall::wait_any(futures);
    futures[index].get();
    futures.erase(futures.begin() + static_cast<std::ptrdiff_t>(index));
    ended++;
  }
  std::cout << "wait any: " << ended << " of 3\n";

  farcall::Future future = nap.async(300, farcall::out(slept[0]));
  std::cout << "time-out: " << (future.wait_for(10ms) ? "ended" : "running");
  future.get();
  std::cout << ", then " << slept[0] << "\n";

  future = nap.async(60000, farcall::out(slept[0]));
  future.cancel();
  failing("cancel", [&] { future.get(); });
}

} // namespace

int main(int argc, char **argv) {
  try {
    const farcall::Server server = argc > 1 ? farcall::Server(argv[1]) : farcall::Server();
    arrays(server);
    kinds(server);
    files(server);
    objects(server);
    errors(server);
    several(server);
  } catch (const farcall::Error &error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
