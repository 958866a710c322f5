// A collective as data: the steps of one rank. Pure algorithms (herd/collectives) write it; comm executes it over any
// transport; verify_schedule.h proves it, cost.h times it, draw_schedule.h draws it, schedule_text.h stores it.
//
// Each step says which slices it reads (sources) and writes (targets). Order follows from that alone:
//   - lanes run their steps first in, first out: one lane for sends to each peer, one for receives from each peer, one
//     for waits on each peer, one for everything local (copy, reduce, signal);
//   - between lanes a step waits for exactly the hazards on overlapping slices: read after write, write after read,
//     write after write, in the order of `steps`.
// The k-th send to a peer meets the k-th receive from this rank there; the k-th signal meets the k-th wait.
// Signal and wait declare (as sources) the slices they hand over, own ones or a peer's, and order whatever touches
// those slices before the signal, or after the wait: for hazards both count as reading and writing them.
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
  kStage,    // shared with peers of the host, holds nothing before the operation. Consecutive operations that use it
             // alternate between two copies, and in each of them every rank hears from every other before it is done
             // (verify_schedule.h checks): so nobody still reads the copy that is two operations old, without closing
             // signals
};

// Elements [begin, end) of one space of one rank.
struct Slice {
  Rank rank = 0;  // the owner: self, or a peer on the same host
  Space space = Space::kOutput;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

enum class StepKind : uint8_t {
  kSend,           // sources[0] to peer, maybe no elements; further sources move nothing, they only order the step
  kReceive,        // from peer into targets[0]; further targets only order the step
  kReceiveReduce,  // targets[0] = sources[0] (+) what peer sends, where (+) is the operation's ReduceOp
  kCopy,           // targets[i] = sources[0], for every i
  kReduce,         // targets[i] = sources[0] (+) sources[1] (+) ..., in this order, for every i; one source with
                   // completes = true just finishes a value
  kSignal,         // tells peer that the declared slices are handed over
  kWait,           // until peer has said so
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

// What a collective of `elements` means, n ranks:
//   all_reduce      input and output [0, elements)
//   all_gather      input [0, counts[rank]), output all inputs in rank order, [0, elements); in place the input is the
//                   rank's own part of the output
//   reduce_scatter  input [0, elements), output [0, counts[rank]): the rank's part of the sum; in place the output is
//                   the rank's own part of the input, which is then kOutput [0, elements) and may be overwritten
//   broadcast       output [0, elements), input only at root (in place: output at root holds it)
//   reduce          input [0, elements), output only at root
//   barrier         elements = 0
//   gather          input the rank's part, output [0, elements) at root only; in place root's part is in its output
//   scatter         input [0, elements) at root only, output the rank's part; in place root's part stays where it is in
//                   its input, which is then kOutput [0, elements)
//   all_to_all      input [0, elements) in n parts, one for each rank; output what each rank sent here, in rank order:
//                   n parts of the size of the rank's own. In place only where both lie alike (elements % n == 0)
// Parts are part_of(elements, n, rank), or `counts` (the uneven, "v" forms), see message_layout.h.
struct Schedule {
  Collective collective = Collective::kAllReduce;
  std::string algorithm = {};  // "ring", "direct_push", ...
  Rank self = 0;
  int num_ranks = 1;
  int root = -1;         // broadcast, reduce, gather, scatter
  int64_t elements = 0;  // of the whole message
  // Elements of each rank's part, elements being their sum; empty = equal parts. For all_to_all a matrix, what rank f
  // sends to rank t at [f * n + t], elements being the most that any rank sends or receives.
  std::vector<int64_t> counts = {};
  DType dtype = DType::kF32;
  DType accumulate = DType::kF32;  // what kReduce with several sources sums in, before it rounds to dtype
  bool in_place = false;
  int64_t scratch_elements = 0;
  int64_t stage_elements = 0;
  std::vector<Step> steps = {};
  bool operator==(const Schedule&) const = default;
};

}  // namespace herd
