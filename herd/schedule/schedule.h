// Defines a collective as data: the steps of one rank. Pure algorithms (herd/collectives) write it; comm executes it
// over any transport. verify_schedule.h proves it, cost.h times it, draw_schedule.h draws it, schedule_text.h stores
// it.
//
// Each step says which slices it reads (sources) and writes (targets). Order follows from that alone:
//   - Lanes run their steps first in, first out. Each peer has a lane for sends, one for receives and one for waits;
//     one more is for everything local (copy, reduce, signal).
//   - Between lanes, a step waits for exactly the hazards on overlapping slices: read after write, write after read,
//     write after write, in the order of `steps`.
// The k-th send to a peer meets the k-th receive from this rank there; the k-th signal meets the k-th wait.
// Signal and wait declare (as sources) the slices they hand over, own ones or a peer's. They order whatever touches
// those slices before the signal, or after the wait. For hazards both count as reading and writing them.
//
// A slice of another rank is read or written in place, in shared memory. Without such slices a schedule runs over any
// transport. Threads: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/base/ids.h"

namespace herd {

enum class Space : uint8_t {
  kInput,    // the caller's input; absent when the operation is in place (then it's a part of kOutput)
  kOutput,   // the caller's output
  kScratch,  // private, holds nothing before the operation
  // Peers of the host share it; it holds nothing before the operation. Consecutive operations that use it alternate
  // between two copies, and in each every rank hears from every other before it is done (verify_schedule.h checks
  // that). So no closing signals are needed: nobody still reads the copy that is two operations old.
  kStage,
};

// Names elements [begin, end) of one space of one rank.
struct Slice {
  Rank rank = 0;  // the owner: self, or a peer on the same host
  Space space = Space::kOutput;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

enum class StepKind : uint8_t {
  kSend,     // sends sources[0], maybe no elements, to peer; further sources move nothing, they only order the step
  kReceive,  // receives from peer into targets[0]; further targets only order the step
  kReceiveReduce,  // targets[0] = sources[0] (+) what peer sends, where (+) is the operation's ReduceOp
  kCopy,           // targets[i] = sources[0], for every i
  // targets[i] = sources[0] (+) sources[1] (+) ..., in this order, for every i; with one source and completes = true it
  // just finishes a value
  kReduce,
  kSignal,  // tells peer that this rank hands over the declared slices
  kWait,    // waits until peer has said so
};

struct Step {
  StepKind kind = StepKind::kCopy;
  Rank peer = -1;                   // kSend, kReceive, kReceiveReduce, kSignal, kWait
  std::vector<Slice> targets = {};  // written
  std::vector<Slice> sources = {};  // read
  bool completes = false;  // kReduce, kReceiveReduce: the result holds all contributions, so average divides here
  bool operator==(const Step&) const = default;
};

enum class Collective : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kBarrier,
  kGather,
  kScatter,
  kAllToAll
};

// A collective of `elements` over n ranks means:
//   all_reduce      input and output [0, elements)
//   all_gather      input [0, counts[rank]), output all inputs in rank order, [0, elements); in place the input is the
//                   rank's own part of the output
//   reduce_scatter  input [0, elements), output [0, counts[rank]): the rank's part of the sum. In place the output is
//                   the rank's own part of the input, which is then kOutput [0, elements) and may be overwritten
//   broadcast       output [0, elements), input only at root (in place: output at root holds it)
//   reduce          input [0, elements), output only at root
//   barrier         elements = 0
//   gather          input the rank's part, output [0, elements) at root only; in place root's part is in its output
//   scatter         input [0, elements) at root only, output the rank's part; in place root's part stays where it is in
//                   its input, which is then kOutput [0, elements)
//   all_to_all      input [0, elements) in n parts, one for each rank; output what each rank sent here, in rank order:
//                   n parts of the size of the rank's own. In place only where both lie alike (elements % n == 0)
// Parts are part_of(elements, n, rank), or those of `counts` (the uneven, "v" forms); see message_layout.h.
struct Schedule {
  Collective collective = Collective::kAllReduce;
  std::string algorithm = {};  // "ring", "direct_push", ...
  Rank self = 0;
  int num_ranks = 1;
  int root = -1;         // broadcast, reduce, gather, scatter
  int64_t elements = 0;  // elements of the whole message
  // Gives the elements of each rank's part, which sum to `elements`; empty = equal parts. For all_to_all [f * n + t] is
  // what rank f sends to rank t, and `elements` the most that any rank sends or receives.
  std::vector<int64_t> counts = {};
  DType dtype = DType::kF32;
  DType accumulate = DType::kF32;  // type that kReduce with several sources sums in, before it rounds to dtype
  bool in_place = false;
  int64_t scratch_elements = 0;
  int64_t stage_elements = 0;
  std::vector<Step> steps = {};
  bool operator==(const Schedule&) const = default;
};

}  // namespace herd
