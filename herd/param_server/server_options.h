// Says where parameter servers run and how they update. Threads: plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "herd/base/ids.h"
#include "herd/kernels/adamw_kernel.h"
#include "herd/kernels/sgd_kernel.h"

namespace herd::param_server {

// Names the ranks of the world that serve, and those that push and pull. A rank may do both.
struct ServerLayout {
  std::vector<Rank> servers;
  std::vector<Rank> workers;
  std::string name = "parameter server";  // each set of servers of a job has a name of its own
};
ServerLayout colocated_servers(int num_ranks, int num_servers);  // the first ranks serve too, all are workers
ServerLayout dedicated_servers(int num_ranks, int num_servers);  // the last ranks only serve
// All but the last `num_dedicated` ranks work and serve, these only serve; each rank is on a host of its own.
ServerLayout mixed_servers(int num_ranks, int num_dedicated);
// Returns the shares of all elements (KeyTable) with which the links of mixed_servers() are equally busy, where pushes
// and pulls overlap: of n workers (n-k)/D each, of k dedicated servers 2(n-1)/D each, D = n^2 + kn - 2k. A round of M
// bytes then takes 2n(n-1)M/(D B) over links of B bytes a second each way. Where k >= n, dedicated servers hold all.
// Source: Jiang et al. 2020, "A Unified Architecture for Accelerating Distributed DNN Training ...", OSDI, section 4.
std::vector<double> balanced_shares(int num_ranks, int num_dedicated);

// No bound on staleness: workers wait for nobody.
constexpr int64_t kAsynchronous = -1;

struct ServerOptions {
  // Round r of a key is the r-th push of each worker; its update uses their average, summed in the order of workers,
  // once all have come: version r. A worker that has pushed r rounds pulls a version of at least r - staleness.
  //   0: synchronous. s > 0: a worker runs at most s rounds ahead of the slowest one. kAsynchronous: see above.
  int64_t staleness = 0;
  // True: each push is an update of its own, as soon as it arrives, and a version. A worker that has pushed r rounds
  // pulls the newest one, once every other has pushed at least r - staleness. kAsynchronous servers do so anyway.
  bool each_push = false;
  std::variant<kernels::SgdHyper, kernels::AdamWHyper> optimizer = kernels::SgdHyper{};
  // Writes the first weights of elements [first, first + weights.size()) of a key; none: zeros.
  std::function<void(int64_t index, int64_t first, std::span<float> weights)> initial = {};
  bool average = true;         // of the gradients of a round; false: their sum
  int64_t updates_before = 0;  // of each key, before this server; AdamW counts them, versions do not
  // Returns the memory of moment k of this server's piece of a key, which outlives the server: SGD's momentum or
  // AdamW's first moment is 0, AdamW's second is 1. None: memory of the server, zeros at first.
  std::function<std::span<float>(int64_t index, int k)> moments = {};
  // True: the update goes on with the other workers when one is lost. Servers with `each_push` do so anyway.
  bool survive_lost_workers = false;
};

}  // namespace herd::param_server

namespace herd {
using param_server::balanced_shares, param_server::colocated_servers, param_server::dedicated_servers,
    param_server::kAsynchronous, param_server::mixed_servers, param_server::ServerLayout, param_server::ServerOptions;
}  // namespace herd
