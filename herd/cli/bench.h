// herd bench measures how long a collective takes here, beside the limit of the memory measured in the same run. Each
// owner rewrites its input before every repetition, so that no "remote" copy comes from its own cache; every element of
// the result is checked. A repetition lasts from the first rank's begin, after a barrier, to the last one's end;
// between machines, as long as its slowest rank. Repetitions of the limit alternate with the operation's, since the
// place of a virtual machine's cores changes within seconds.
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
  std::string op = "all_reduce";  // a name of bench_kinds(), or "all"
  int ranks = 2;
  std::vector<int64_t> bytes = {4 << 10, 1 << 20, 64 << 20};  // of the whole message, as schedule.h defines it
  std::string dtype = "fp32";
  std::string redop = {};         // a name of reduce_op.h; empty = sum (bool: max)
  std::string algorithm = {};     // empty = chosen
  std::string transport = "shm";  // shm: forked ranks, inproc: threads
  bool symmetric = false;         // buffers in symmetric memory
  std::string device = "cpu";     // where the buffers lie: cpu or cuda
  std::string engine = "auto";    // of a device: device_engine.h
  bool in_place = false;          // all_gather, reduce_scatter, all_to_all; others have no choice
  int root = 0;                   // of those that have one
  int64_t segment_bytes = 0;      // of pipelined algorithms; 0 = by the message
  bool json = false;
  double seconds = 1;  // about, per size
};

struct BenchResult {
  std::string op, algorithm, transport, dtype, redop;
  int ranks = 0;
  bool symmetric = false, in_place = false;
  int root = 0;
  int64_t bytes = 0, count = 0;  // of the whole message; elements
  int repetitions = 0;
  double us_min = 0, us_median = 0;
  double predicted_us = 0;  // by the model, on what the job measured when it began; 0 where there is none
  double algbw_GBps = 0;    // bytes / us_median
  double busbw_GBps = 0;    // algbw times nccl-tests' factor of the operation
  double bound_GBps = 0;    // what algbw could be at most in memory; 0 for a barrier
  double core_ns = 0;       // round trip of a cache line between ranks 0 and 1, median; 0 = not measured
  int64_t wrong = 0;        // elements, over all ranks and repetitions
  std::string device = "cpu", engine = {};
  double copy_GBps = 0, to_host_GBps = 0, to_device_GBps = 0;  // of a device, measured beside; else 0
};

// Runs on every rank of the group; the result is the same on all.
BenchResult bench(Communicator& comm, const BenchOptions& options, int64_t bytes);

// Says how many more repetitions to make, 0 = enough, and after how many of all to measure the machine.
struct MoreRepetitions {
  int count = 0, stride = 1;
};
constexpr int kWarmUps = 3;  // repetitions that do not count

// Returns what fits into the seconds, where `done` repetitions took so long: the warm-ups, or all that count so far. At
// most ten times as many as were done: a link may let a burst pass at once, and then be slow.
MoreRepetitions more_repetitions(int done, double spent_us, double seconds, bool are_warm_ups);

// Holds when a rank began and ended a repetition, by its machine's clock; as constructed, where the rank takes no part.
struct Span {
  int64_t begin_ns = INT64_MAX, end_ns = INT64_MIN;
};

// Returns how long repetitions took, in microseconds. Where all ranks have one clock, a repetition lasts from the first
// one's begin to the last one's end. Ranks that share a core may run one after the other. Else it lasts as long as the
// slowest rank. Collective; the same on all ranks.
std::vector<double> times_of_all(Communicator& comm, bool one_clock, const std::vector<Span>& own);

// Throws kBug with the operation and its algorithm where elements are wrong.
void check_right(const BenchResult& result);

// Throws kBadConfig where this machine has no memory for a message in each of its ranks: those of the job, or else
// `ranks`. Call it before the ranks meet, since afterwards some have taken what they need.
void check_room(const std::vector<int64_t>& sizes, int ranks);

void add_bench_command(CLI::App& app);
int run_bench(const BenchOptions& options);

}  // namespace herd::cli
