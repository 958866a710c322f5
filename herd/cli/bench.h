// herd bench: how long a collective takes here, beside the limit of the memory measured in the same run.
// Each owner rewrites its input before every repetition, so that no "remote" copy comes from its own cache; elements of
// the result are checked. A repetition takes as long as its slowest rank, from a barrier on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"

namespace CLI {
class App;
}

namespace herd::cli {

struct BenchOptions {
  std::string op = "all_reduce";  // all_gather, reduce_scatter, broadcast, reduce, barrier, send
  int ranks = 2;
  std::vector<int64_t> bytes = {4 << 10, 1 << 20, 64 << 20};  // of the whole message, as schedule.h defines it
  std::string algorithm;                                      // empty = chosen
  std::string transport = "shm";                              // shm: forked ranks, inproc: threads
  bool symmetric = false;                                     // buffers in symmetric memory
  bool json = false;
  double seconds = 1;  // about, per size
};

struct BenchResult {
  std::string op, algorithm, transport;
  int ranks = 0;
  int64_t bytes = 0;
  double us_min = 0, us_median = 0;
  double algbw_GBps = 0;  // bytes / us_median
  double busbw_GBps = 0;  // algbw times nccl-tests' factor of the operation
  double bound_GBps = 0;  // what algbw could be at most: the operation's kernel without any synchronisation
};

// On every rank of the group; the result is the same on all.
BenchResult bench(Communicator& comm, const BenchOptions& options, int64_t bytes, double bound_GBps);
// All ranks at once run the operation's kernel on private memory of at least four times the last cache; the better of
// the store kinds. Bytes of the message per second, in units of 1e9.
double memory_bound(Communicator& comm, const std::string& op);

void add_bench_command(CLI::App& app);
int run_bench(const BenchOptions& options);

}  // namespace herd::cli
