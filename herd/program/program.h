// A training step as data: the loop body of one rank. build.h writes the plain step of a model, strategies rewrite it,
// verify_program.h proves it, simulate.h times it, program_text.h stores it, draw_program.h draws it, and runtime
// executes it.
//
// An op says which values it reads and writes. Order and lifetime follow: lanes run their ops first in, first out;
// between lanes an op waits for exactly the hazards (read after write, write after read, write after write), across
// the end of the loop body too; a value dies after its last read before its next write (lifetimes.h). No rewrite
// writes a dependency or a release by hand.
//
// Values are keyed by parameter group, not by block: a block lists the groups it reads (a tied embedding is one group
// that two blocks read). Blocks are a chain 0 .. num_blocks-1; the last one is the loss block: its single op kLoss
// computes loss, input gradient and weight gradient together, micro-batch by micro-batch. Tokens have no gradient.
// An activation is one tensor, keyed by its producer: x0 are the tokens, x<b+1> is what block b gives. Any later block
// may read it; the gradients of its readers add up as those of weights do.
//
// A value is one buffer of a rank: what of (kind, index, micro-batch), how it lies on each axis of the mesh
// (placement.h), how its numbers are written, and in which tier of memory. Collectives alone change the placement,
// along their axis: all-reduce partial -> whole, reduce-scatter partial -> shard, all-gather shard -> whole. Encode and
// decode alone change the codec, fetch and evict the tier.
// A gradient is summed where it lies: which contributions it has is no part of its placement, and the verifier follows
// it. What the model itself cuts (weights of tensor-parallel blocks) is a group of the rank's own.
//
// Ops of a block (load, forward, loss, logits, recompute, backward, send, receive) name block and micro_batch; ops of
// parameter groups (norm, clip, step, fetch, evict) and collectives leave both -1: their values say of what. A loss
// that ranks of an axis compute together names the axis. A release names what it releases as writes. The first op that
// touches a gradient in a step writes it; the others read it and add. Threads: plain data.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "herd/program/placement.h"
#include "herd/topology/mesh.h"

namespace herd::program {

enum class OpKind : uint8_t {
  kLoad,       // -> x0.m and target.m: the tokens of a micro-batch, and what they should be followed by
  kForward,    // weights, x<b>.m [, cache<b>] -> x<b+1>.m, graph<b>.m; or -> x<b+1>.m, cache<b>
  kLoss,       // weights, x<last>.m, target.m [, gradient so far] -> dx<last>.m, gradient, loss.m
  kRecompute,  // weights, x<b>.m -> graph<b>.m
  kBackward,   // weights, graph<b>.m, dx<b+1>.m [, x<b>.m] [, gradient so far] -> dx<b>.m, gradient; or -> dx<b>.m,
               // pending<b>.m
  kBackwardWeight,  // pending<b>.m [, gradient so far] -> gradient: what a backward of inputs alone has left over
  kAllGather,       // over an axis: w.shard -> w, x.shard -> x
  kAllReduce,       // sums over an axis: g -> g, g.shard -> g.shard among copies, norms, x.partial -> x
  kReduceScatter,   // sums over an axis: g [, g.shard so far] -> g.shard, x.partial -> x.shard
  kNorm,            // gradients -> a norm each, or one of all of them; kAllReduce of it over ranks where sharded, then
  kClip,            // norms -> factor (run-time choices are buffers that ops read)
  kStep,            // gradient, state, [factor] -> weight, state
  kSend,            // to a pipeline stage
  kReceive,
  kFetch,    // host -> device
  kEvict,    // device -> host
  kRelease,  // the value holds nothing from here on; written by lifetimes.h only
  kEncode,   // plain -> another codec
  kDecode,   // another codec -> plain
  kLogits,   // weights, x<last>.m -> logits.m: what a pass that continues texts has in place of a loss
};

enum class Lane : uint8_t {
  kCompute,
  kGather,       // of weights
  kReduce,       // of gradients
  kActivations,  // collectives of them and of their gradients
  kPeerIn,
  kPeerOut,
  kCopyIn,
  kCopyOut,
  kHost,
  kIo
};

enum class ValueKind : uint8_t {
  kWeight,              // w<group>
  kGradient,            // g<group>
  kState,               // s<group>: optimizer moments
  kActivation,          // x<block>.<micro-batch>: what the block before gives
  kActivationGradient,  // dx<block>.<micro-batch>
  kGraph,               // graph<block>.<micro-batch>: what backward needs; a shard of it, what it needs beside inputs
                        // that it reads again
  kLoss,                // loss.<micro-batch>: (sum, count)
  kNorm,                // norm<group>: partial sum of squares
  kFactor,              // factor: what gradients are multiplied with
  kTarget,              // target.<micro-batch>: labels for the loss
  kPending,             // pending<block>.<micro-batch>: what the gradients of a block's weights are made of
  kCache,               // cache<block>: keys and values of the tokens that its attention has seen (generation_passes.h)
  kLogits,              // logits.<micro-batch>: of the last token of each sequence, fp32
};

// How numbers are written: plain, as the model computes with them, or shorter, to be moved.
enum class Codec : uint8_t { kPlain, kBf16 };
enum class Tier : uint8_t { kDevice, kHost, kNvme };

struct Value {
  ValueKind kind = ValueKind::kActivation;
  int index = 0;         // group or block
  int micro_batch = -1;  // -1 = none
  Placement placement = {};
  Codec codec = Codec::kPlain;
  Tier tier = Tier::kDevice;
  auto operator<=>(const Value&) const = default;
};

struct Op {
  OpKind kind = OpKind::kForward;
  Lane lane = Lane::kCompute;
  std::vector<Value> reads = {};
  std::vector<Value> writes = {};
  int block = -1;
  int micro_batch = -1;
  int axis = kNoAxis;  // of Program::mesh: who takes part in a collective, along which a message goes
  int peer = -1;       // kSend, kReceive: index on the axis
  bool operator==(const Op&) const = default;
};

struct ValueInfo {
  int64_t bytes = 0;
  bool persistent = false;  // lives from step to step
  int slot = -1;            // buffer that lives as long as the run, set by slots.h (of what is received a place alone);
                            // -1 = its own memory, taken by the op that writes it first and given back by its release
  bool pooled = false;      // not persistent: shares buffers with others of its kind, one from first write to release
  bool operator==(const ValueInfo&) const = default;
};

struct Program {
  int rank = 0;
  int num_blocks = 0;
  int micro_batches = 1;
  Mesh mesh;
  int data_axis = kNoAxis;                     // axis of `mesh` whose ranks work on samples of their own
  int tensor_axis = kNoAxis;                   // axis of `mesh` whose ranks share the work on each sample
  std::vector<std::vector<int>> block_groups;  // per block: the parameter groups it reads
  std::map<Value, ValueInfo> values;
  std::map<std::pair<OpKind, int>, int64_t> scratch;  // (op, block) -> device bytes it takes and gives back while it
                                                      // runs; negative where its values share some
  std::vector<Op> ops;
  bool operator==(const Program&) const = default;
};

}  // namespace herd::program
