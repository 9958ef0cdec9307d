// Runs one all-to-all workload on SimGrid and prints makespan, messages, time and memory as JSON.
//
//   simgrid_driver fat-tree P | torus N    ALGORITHM SIZE BANDWIDTH STEPS [PERMUTATION]
//
// P is half the ports of the switches of a three-level fat tree (2 P^3 nodes); N is the side of a
// square torus. ALGORITHM: simple-spread, simple-spread-2d, pairwise. STEPS: messages a node, 0
// for all. PERMUTATION: a file with the node of each rank, one a line. Every rank is an actor with
// blocking sends. Routes, links and the sharing model (max-min without latency, cross traffic or
// TCP factors) are those of Farcall's flow simulator, computed here independently; both solvers
// work to a relative precision of 1e-9 or better.

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>

namespace sg4 = simgrid::s4u;
using simgrid::kernel::resource::StandardLinkImpl;
using simgrid::kernel::routing::NetPoint;
using simgrid::kernel::routing::Route;

static std::string topology;
static unsigned side;   // P or N
static unsigned nodes;
static std::vector<StandardLinkImpl*> links;
static std::vector<sg4::Host*> hosts;

static void route_fat_tree(unsigned src, unsigned dst, std::vector<unsigned>& out) {
  const unsigned p = side;
  const unsigned leaf = p, pod = p * p;
  // Links: level 0 up, down; level 1 up, down; level 2 up, down: `nodes` of each.
  const unsigned port1 = dst % p, port2 = dst / p % p;
  out.push_back(src);
  if (src / leaf != dst / leaf) {
    out.push_back(2 * nodes + src / leaf * p + port1);
    if (src / pod != dst / pod) {
      out.push_back(4 * nodes + (src / pod * p + port1) * p + port2);
      out.push_back(5 * nodes + (dst / pod * p + port1) * p + port2);
    }
    out.push_back(3 * nodes + dst / leaf * p + port1);
  }
  out.push_back(nodes + dst);
}

static void route_torus(unsigned src, unsigned dst, std::vector<unsigned>& out) {
  const unsigned n = side;
  unsigned at[2] = {src % n, src / n};
  const unsigned to[2] = {dst % n, dst / n};
  for (int dim = 0; dim < 2; dim++) {
    const unsigned forward = (to[dim] + n - at[dim]) % n;
    const bool positive = forward <= n - forward;
    for (unsigned steps = positive ? forward : n - forward; steps > 0; steps--) {
      out.push_back(4 * (at[1] * n + at[0]) + 2 * dim + (positive ? 0 : 1));
      at[dim] = (at[dim] + (positive ? 1 : n - 1)) % n;
    }
  }
}

class ComputedZone : public simgrid::kernel::routing::NetZoneImpl {
public:
  explicit ComputedZone(const std::string& name) : NetZoneImpl(name) {}
  void get_local_route(const NetPoint* src, const NetPoint* dst, Route* into, double*) override {
    static std::vector<unsigned> path;
    path.clear();
    if (topology == "torus")
      route_torus(src->id(), dst->id(), path);
    else
      route_fat_tree(src->id(), dst->id(), path);
    for (unsigned link : path)
      into->link_list_.push_back(links[link]);
  }
  void get_graph(const s_xbt_graph_t*, std::map<std::string, xbt_node_t, std::less<>>*,
                 std::map<std::string, xbt_edge_t, std::less<>>*) override {}
};

static unsigned destination(const std::string& algorithm, unsigned rank, unsigned step) {
  if (algorithm == "pairwise")
    return rank ^ step;
  if (algorithm == "simple-spread-2d")
    return (rank % side + step % side) % side + (rank / side + step / side) % side * side;
  return (rank + step) % nodes;
}

int main(int argc, char* argv[]) {
  sg4::Engine engine(&argc, argv);
  if (argc < 7) {
    std::cerr << "usage: simgrid_driver fat-tree|torus SIDE ALGORITHM SIZE BANDWIDTH STEPS "
                 "[PERMUTATION]\n";
    return 2;
  }
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/crosstraffic:0");
  sg4::Engine::set_config("network/TCP-gamma:0");
  sg4::Engine::set_config("network/latency-factor:0");
  sg4::Engine::set_config("network/bandwidth-factor:1");
  sg4::Engine::set_config("network/weight-S:0");
  sg4::Engine::set_config("network/loopback-bw:1e18");
  sg4::Engine::set_config("surf/precision:1e-12");
  sg4::Engine::set_config("maxmin/precision:1e-9");
  sg4::Engine::set_config("contexts/stack-size:16");
  topology = argv[1];
  side = std::atoi(argv[2]);
  const std::string algorithm = argv[3];
  const uint64_t size = std::strtoull(argv[4], nullptr, 10);
  const double bandwidth = std::atof(argv[5]);
  unsigned steps = std::atoi(argv[6]);
  const bool torus = topology == "torus";
  nodes = torus ? side * side : 2 * side * side * side;
  if (steps == 0 || steps > nodes - 1)
    steps = nodes - 1;

  std::vector<unsigned> placement(nodes);
  for (unsigned i = 0; i < nodes; i++)
    placement[i] = i;
  if (argc > 7) {
    std::ifstream file(argv[7]);
    for (unsigned& node : placement)
      if (!(file >> node)) {
        std::cerr << argv[7] << ": fewer than " << nodes << " nodes\n";
        return 1;
      }
  }

  auto* zone = (new ComputedZone("network"))->get_iface();
  for (unsigned i = 0; i < nodes; i++)
    hosts.push_back(zone->create_host("h" + std::to_string(i), 1e9)->seal());
  const unsigned count = torus ? 4 * nodes : 6 * nodes;
  for (unsigned i = 0; i < count; i++) {
    auto* link = zone->create_link("l" + std::to_string(i), bandwidth)->set_latency(0)->seal();
    links.push_back(link->get_impl());
  }
  zone->seal();

  for (unsigned rank = 0; rank < nodes; rank++) {
    sg4::Actor::create("r" + std::to_string(rank), hosts[placement[rank]], [=, &placement]() {
      sg4::Host* from = hosts[placement[rank]];
      for (unsigned step = 1; step <= steps; step++) {
        sg4::Comm::sendto(from, hosts[placement[destination(algorithm, rank, step)]], size);
      }
    });
  }
  const auto start = std::chrono::steady_clock::now();
  struct rusage before;
  getrusage(RUSAGE_SELF, &before);
  engine.run();
  struct rusage after;
  getrusage(RUSAGE_SELF, &after);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  auto cpu = [](const rusage& u) {
    return u.ru_utime.tv_sec + u.ru_utime.tv_usec * 1e-6 + u.ru_stime.tv_sec +
           u.ru_stime.tv_usec * 1e-6;
  };
  std::printf("{\"makespan\":%.15g,\"messages\":%llu,\"wall_s\":%.6f,\"cpu_s\":%.6f,"
              "\"peak_rss_bytes\":%ld}\n",
              sg4::Engine::get_clock(), 1ULL * nodes * steps, wall.count(),
              cpu(after) - cpu(before), after.ru_maxrss * 1024L);
  std::fflush(stdout);
  std::_Exit(0);
}
