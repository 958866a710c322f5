// Predicts a training step without a tensor: how long it takes, what runs when, and what memory holds. Ops last as long
// as they were measured to last, or as their arithmetic and memory traffic need. All ranks of a host share its cores
// and memory bus, also for communication, so more ranks than cores slow each other down.
//   work = flops / (threads * FLOP/s of a core) + bytes / (bytes/s of a core) + overhead of the op
// Threads: pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "herd/program/expert_traffic.h"
#include "herd/program/memory_bound.h"
#include "herd/program/memory_use.h"
#include "herd/program/program.h"
#include "herd/program/tier_traffic.h"
#include "herd/sim/timeline.h"
#include "herd/spec/model_table.h"

namespace herd::program {

// Says what a machine does; whoever runs the prediction measures it. The defaults are those of a small server.
struct Calibration {
  int cores = 2;                         // cores of the host, for all its ranks
  int threads = 1;                       // threads of a rank
  double matmul_flops_per_us = 90e3;     // one core, large fp32 matrices
  double attention_flops_per_us = 30e3;  // one core, the fused kernel
  double core_bytes_per_us = 8'000;      // one core, streams in memory
  double host_bytes_per_us = 13'000;     // all cores together
  double op_overhead_us = 50;            // time to launch an op's kernels
  // Rate between a rank's own device and the host's memory, each way. The host updates what it keeps at this rate, too.
  // 0 = device and host have one memory.
  double host_link_bytes_per_us = 0;
  // Rate to which copies between device and host are slowed where both have one memory (memory.link). 0 = not slowed.
  double emulated_link_bytes_per_us = 0;
  double nvme_bytes_per_us = 3'000;  // rate at which a rank reads and writes its files on NVMe

  // These were measured with all ranks of the host at work and cores enough, and replace the rates above. They
  // include the time spent waiting for memory, so a measured op takes this rank's share of the bus at most.
  // measured_us has, by op kind and block, the time of forward, loss and backward for one micro-batch.
  std::map<std::pair<OpKind, int>, double> measured_us = {};
  double update_us_per_element = 0;  // time of the optimizer, one thread; 0 = not measured
  double norm_us_per_element = 0;
  double reduce_us_per_byte = 0;  // time of an all-reduce per byte of each rank's message
  // Time in which one thread of a rank reads a sample of its own data; 0 = next to none. A step begins when its samples
  // are read: after the step before, or where it reads ahead beside it.
  double read_us_per_sample = 0;
  bool reads_ahead = false;
};

struct CollectivePrice {
  double latency_us = 0;  // time of waiting that uses nothing
  double work_us = 0;     // time on one core of the rank with no other load
  double host_bytes = 0;  // memory traffic that the rank causes, in bytes
};

// Prices a collective for one rank. Planner and trainer price the schedule that they would run.
class CollectiveCost {
 public:
  virtual ~CollectiveCost() = default;
  // Prices kAllGather, kAllReduce, kReduceScatter, kAllToAll, kBroadcast or kReduce of a whole message of `bytes` among
  // the ranks of an axis. Prices kSend or kReceive of a message between neighbours on the axis, at either end.
  virtual CollectivePrice price(OpKind kind, int64_t bytes, const Mesh& mesh, int axis) const = 0;
  // Prices the same for values in the hosts' memory, where ranks have devices of their own: price() is that of devices.
  virtual CollectivePrice price_on_host(OpKind kind, int64_t bytes, const Mesh& mesh, int axis) const {
    return price(kind, bytes, mesh, axis);
  }
  // Prices a push of `bytes` by each rank of an axis to so many parameter servers, or the pull of as many: the servers
  // are ranks of their own, those behind the mesh's.
  virtual CollectivePrice price_served(int64_t bytes, int servers, const Mesh& mesh, int axis) const {
    return price(OpKind::kReduceScatter, mesh.size(axis) * bytes / servers, mesh, axis);
  }
};

// Prices ranks of one host that reduce straight out of each other's memory. In an all-reduce of S bytes a rank reads S
// and writes S. It reads its part, S/n, of each of n inputs, and writes it to each of n outputs. A gather, or a
// reduce-scatter, moves half of that. The time is as measured, else that of the traffic. A host whose ranks have
// devices moves these bytes at the rate of the link to them, as it updates.
class SharedMemoryCost final : public CollectiveCost {
 public:
  explicit SharedMemoryCost(const Calibration& calibration) : calibration_(calibration) {}
  CollectivePrice price(OpKind kind, int64_t bytes, const Mesh& mesh, int axis) const override;
  CollectivePrice price_on_host(OpKind kind, int64_t bytes, const Mesh& mesh, int axis) const override;

 private:
  Calibration calibration_;
};

// Holds what a pass over a block asks of a rank that has its threads and the memory to itself.
struct PassWork {
  double work_us = 0, host_bytes = 0;
};
// `more_bytes` are bytes of memory traffic beside those of `cost`.
PassWork pass_work(const spec::PassCost& cost, double more_bytes, const Calibration& calibration);

struct Simulation {
  double step_us = 0;            // time from step to step, once steps follow each other steadily
  double idle_share = 0;         // share of the time of all passes of a step in which a rank runs none, mean of ranks
  sim::Timeline timeline;        // one steady step of every rank, a row per lane
  std::vector<OpMemory> memory;  // of one rank's device over that step
  Peak device_peak;              // largest entry of `memory`
  std::vector<TierTraffic> traffic;  // of that rank in that step
  std::vector<ExpertTraffic> expert_traffic;
};

// Simulates `programs` of ranks that share the machine's cores and memory; collectives do not wait for ranks that are
// not among them. Memory is that of programs[memory_of]. Throws kBadConfig if their lanes wait for each other in a
// circle.
Simulation simulate(const std::vector<Program>& programs, const spec::ModelTable& model, const Calibration& calibration,
                    const CollectiveCost& cost, size_t memory_of = 0);

}  // namespace herd::program
