// Predicts a training step: how long, when what runs, and what memory holds, without a tensor.
// Ops last as long as they were measured to last, or as their arithmetic and their memory traffic need; cores and the
// memory bus of the host are shared by all its ranks, communication included, so that more ranks than cores slow each
// other down.
//   work = flops / (threads * FLOP/s of a core) + bytes / (bytes/s of a core) + overhead of the op
// Threads: pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "herd/program/memory_bound.h"
#include "herd/program/memory_use.h"
#include "herd/program/program.h"
#include "herd/sim/timeline.h"
#include "herd/spec/model_table.h"

namespace herd::program {

// What a machine does, measured in seconds by whoever runs the prediction; the defaults are those of a small server.
struct Calibration {
  int cores = 2;                         // of the host, for all its ranks
  int threads = 1;                       // of a rank
  double matmul_flops_per_us = 90e3;     // one core, large fp32 matrices
  double attention_flops_per_us = 30e3;  // one core, the fused kernel
  double core_bytes_per_us = 8'000;      // one core, streams in memory
  double host_bytes_per_us = 13'000;     // all cores together
  double op_overhead_us = 50;            // launching an op's kernels

  // What was measured on the machine itself, with all ranks of the host at work but no lack of cores; it goes before
  // the rates above. Work that waits for memory has waited for it here too: it takes a rank's share of the bus at most.
  std::map<std::pair<OpKind, int>, double> measured_us = {};  // forward, loss, backward of a block, one micro-batch
  double update_us_per_element = 0;                           // of the optimizer, one thread; 0 = not measured
  double norm_us_per_element = 0;
  double reduce_us_per_byte = 0;  // of an all-reduce, S bytes on each rank
};

struct CollectivePrice {
  double latency_us = 0;  // waiting that uses nothing
  double work_us = 0;     // on a core of the rank, alone
  double host_bytes = 0;  // of memory traffic that the rank causes
};

// What a collective costs one rank. Planner and trainer price by the schedule they would run.
class CollectiveCost {
 public:
  virtual ~CollectiveCost() = default;
  // kAllGather, kAllReduce or kReduceScatter of a whole message of so many bytes, among the ranks of an axis; kSend or
  // kReceive of one between neighbours on it, at either end.
  virtual CollectivePrice price(OpKind kind, int64_t bytes, const Mesh& mesh, int axis) const = 0;
};

// Ranks of one host reduce straight out of each other's memory. Of S bytes a rank reads S and writes S in an all-reduce
// (its slice of n inputs, to n outputs), half of it in a gather or where each keeps its slice. Time: as measured, else
// that of the traffic.
class SharedMemoryCost final : public CollectiveCost {
 public:
  explicit SharedMemoryCost(const Calibration& machine) : machine_(machine) {}
  CollectivePrice price(OpKind kind, int64_t bytes, const Mesh& mesh, int axis) const override;

 private:
  Calibration machine_;
};

// What a pass over a block asks of a rank that has its threads and the memory to itself.
struct PassWork {
  double work_us = 0, host_bytes = 0;
};
PassWork pass_work(const spec::Cost& cost, double more_bytes, const Calibration& machine);

struct Simulation {
  double step_us = 0;            // from step to step, once steps follow each other steadily
  sim::Timeline timeline;        // one steady step of every rank, a row per lane
  std::vector<OpMemory> memory;  // of one rank's device over that step
  Peak device_peak;              // its largest
};

// `programs`: of ranks that share the machine's cores and memory; whoever else they meet is never late. Memory is that
// of programs[whose]. Throws kBadConfig if their lanes wait for each other in a circle.
Simulation simulate(const std::vector<Program>& programs, const spec::ModelTable& model, const Calibration& machine,
                    const CollectiveCost& cost, size_t whose = 0);

}  // namespace herd::program
