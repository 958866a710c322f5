// Defines a training step as data: a Program holds the loop body of one rank. build.h writes the plain step of a model,
// and strategies rewrite it. verify_program.h proves it, simulate.h times it, program_text.h stores it, draw_program.h
// draws it, and runtime executes it.
//
// An op says which values it reads and writes. Order and lifetime follow from that alone:
//   - Each lane starts its ops first in, first out.
//   - An op waits for exactly the hazards: read after write, write after read, write after write. Hazards also hold
//     between the end of the loop body and its next run (op_dependencies.h).
//   - A value dies after its last read before its next write (lifetimes.h).
// So no rewrite writes a dependency or a release by hand.
//
// Values belong to parameter groups, not to blocks. A block lists the groups it reads; a tied embedding is one group
// that two blocks read. Blocks 0 .. num_blocks-1 are a chain, and the last one is the loss block. Its single op kLoss
// computes loss, input gradient and weight gradient of one micro-batch. Tokens have no gradient.
// The number of an activation says what made it: x0 is the batch (its tokens), x<b+1> the output of block b. What gives
// several tensors numbers them: x<b+1>, x<b+1>:1, .. Any later block may read an activation. The gradients of its
// readers add up, as those of weights do.
//
// A value is one buffer of a rank. Its key says what it holds: kind, index and micro-batch. The key also says how the
// value lies on each axis of the mesh (placement.h), its codec, and its tier of memory. Only collectives change the
// placement, each along its own axis. An all-reduce turns partial into whole, a reduce-scatter partial into shard, an
// all-gather shard into whole, an all-to-all a shard along one dimension into one along another, a reduce whole into
// owned, a broadcast owned into whole. Only encode and decode change the codec; only fetch and evict change the tier. A
// gradient keeps its key while ranks add to it, and the verifier follows which contributions it has. The model itself
// cuts some weights, those of tensor-parallel blocks. Each rank's part of them is a parameter group of its own.
//
// Ops of a block (load, forward, loss, logits, recompute, both backwards) name block and micro_batch, and so do send,
// receive and add. All other ops have -1 in both, since their values say what they work on. A pass that the ranks of an
// axis run together names the axis: a loss, or attention in a ring. A release lists what it releases as writes. The
// first op that touches a gradient in a step writes it; later ones read it and add. Threads: plain data.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "herd/program/placement.h"
#include "herd/spec/tensor_shape.h"
#include "herd/topology/mesh.h"

namespace herd::program {

// Names what an op does. Each line shows what it reads -> what it writes, for block b and micro-batch m. The weights
// and gradients of the block's groups are w.. and g..; c is the block that routes its rows; what stands in [] is
// optional.
enum class OpKind : uint8_t {
  kLoad,  // -> x0.m.. [, target.m]. It takes tensors of a micro-batch, and the labels of tokens, from the batch.
  // w.., x<b>.m.. [, cache<b>] [, routing<c>.m] -> x<b+1>.m.. [, graph<b>.m] [, cache<b>] [, routing<b>.m]. It runs b.
  kForward,
  kLoss,       // w.., x<b>.m.. [, target.m] [, g..] -> loss.m [, dx<b>.m..] [, g.. or pending<b>.m]. It runs the loss.
  kRecompute,  // w.., x<b>.m [, routing<c>.m] -> graph<b>.m. It runs the forward of block b again, for its graph alone.
  // w.., graph<b>.m, dx<b+1>.m [, x<b>.m] [, g..] -> dx<b>.m, g.. or pending<b>.m. It runs the backward of block b.
  // Where it writes `pending`, it is the first of two halves, and leaves the gradients of weights to kBackwardWeight.
  kBackward,
  kBackwardWeight,  // pending<b>.m [, g..] -> g.. It makes the gradients of weights that the first half has left.
  kAllGather,       // w.shard -> w, in any codec, x.shard -> x, or routing.shard -> routing. It gathers along an axis.
  kAllReduce,       // g -> g, g.shard -> g.shard, norm -> norm, or x.partial -> x. It sums along an axis.
  kReduceScatter,   // g [, g.shard] -> g.shard, or x.partial -> x.shard. It sums along an axis, g.shard included.
  kNorm,            // g.. -> norm of each, or one norm of all. A kAllReduce follows where ranks hold shards or stages.
  kClip,            // norm.. -> factor. It makes the factor that clips the gradients and undoes a loss scale.
  kStep,            // g, w, s [, factor] -> w, s. It updates one parameter group's weights (no training step).
  kSend,            // x.m or dx.m ->. It sends to `peer` along an axis.
  kReceive,         // -> x.m, dx.m or dx.m.partial(axis). It receives from `peer` along an axis.
  // v.host -> v, or v.nvme -> v.host. It copies to a tier nearer to the device. Of w:2.host, w -> w it puts a piece.
  kFetch,
  // v -> v.host, or v.host -> v.nvme. It copies to a tier farther from the device. Of g -> g:2.host it takes a piece.
  kEvict,
  kRelease,  // It ends the values listed as writes, which then hold nothing. Only lifetimes.h writes it.
  // v -> v.bf16, or g, e -> g.int8, e, or w.shard -> w.shard.int8. It rounds plain numbers to another codec. Gradients
  // in codecs that lose more than bf16 keep what they lost in e, and add it the next time.
  kEncode,
  // v.bf16 -> v. It turns another codec into plain numbers. g.shard.int8 [, g.shard] -> g.shard sums the ranks' terms.
  kDecode,
  kLogits,  // w.., x<b>.m -> logits.m. It stands in place of the loss in a pass that continues texts.
  kAdd,     // dx.m, dx.m.partial(axis) -> dx.m. It adds what another rank's blocks contribute.
  // x.shard -> x.shard(axis:heads), or back. It changes the dimension along which an axis cuts a value. Or
  // x.m, routing<b>.m [, dx.m] -> x.m.shard(axis:experts), or back without the last: it gives rows to the ranks of
  // their experts, as many as the routing says. Or g.int8 -> g.shard.int8: it gives each rank what all ranks have
  // encoded of its shard.
  kAllToAll,
  kPush,  // g -> p. It gives this rank's gradient to the parameter servers of an axis.
  // p, s -> w, s. It gets weights from the servers, which update a group once all ranks of the axis have pushed; or
  // with each push, where a rank may be up to Op::staleness steps ahead of the slowest.
  kPull,
  // w.owned -> w on the owner, -> w on the other ranks of the axis. Op::peer is the owner's index on it.
  kBroadcast,
  // g [, g.owned] -> g.owned on the owner, g -> on the other ranks. It sums along an axis, g.owned included.
  kReduce,
};

// Names a queue of ops that start first in, first out. Different lanes run beside each other.
enum class Lane : uint8_t {
  kCompute,      // passes over blocks, and all else that computes on the device
  kGather,       // all-gathers of weights
  kReduce,       // reductions of gradients and norms
  kActivations,  // collectives of activations and of their gradients
  kPeerIn,       // receives
  kPeerOut,      // sends
  kCopyIn,       // copies from the host to the device
  kCopyOut,      // copies from the device to the host
  kHost,         // arithmetic on values that the host keeps
  kIo,           // fetches from files and evicts to them
  kUpdate        // updates of weights that run beside passes
};

// Names what a value holds. Each line begins with its name in text, where m is the micro-batch.
enum class ValueKind : uint8_t {
  kWeight,              // w<group>: weights of a parameter group
  kGradient,            // g<group>: gradients of those weights
  kState,               // s<group>: what the optimizer keeps, such as moments and the fp32 part of 16-bit weights
  kActivation,          // x<b>.m: the output of block b-1; x0 are the tokens
  kActivationGradient,  // dx<b>.m: the gradient of x<b>.m
  // graph<b>.m: what backward needs of a forward. Placed as a shard it lacks the inputs that backward reads again
  // (strategies/tensor_parallel.h).
  kGraph,
  kLoss,      // loss.m: the sum of the token losses in nats, and the number of tokens that count
  kNorm,      // norm<group>: a sum of squares of gradients, or of this rank's part of them; not yet its root
  kFactor,    // factor: the number that kStep multiplies gradients with
  kTarget,    // target.m: the labels of the tokens
  kPending,   // pending<b>.m: what the first half of a backward keeps to make the gradients of weights later
  kCache,     // cache<b>: keys and values of the tokens that block b's attention has seen
  kLogits,    // logits.m: logits of the last token of each sequence, in fp32
  kResidual,  // e<group>: what encoding gradients has lost so far, with room to exchange them
  kPushed,    // p<group>: room of the parameter servers of this rank for gradients that ranks have pushed
  // routing<b>.m: what the router of block b has chosen, which passes that are computed again take over. Where ranks
  // share experts, it also has the counts of all of them, which a shard lacks.
  kRouting,
};

// Names how numbers are written. The model computes with plain ones; encoded ones are shorter, to be moved.
enum class Codec : uint8_t { kPlain, kBf16, kInt8, kInt4, kTopK };
// Tells whether encoding keeps what it loses in a residual.
constexpr bool keeps_residuals(Codec codec) { return codec != Codec::kPlain && codec != Codec::kBf16; }
// Names the memory that holds a value: the device's, the host's, or files on NVMe.
enum class Tier : uint8_t { kDevice, kHost, kNvme };

constexpr int kNoBound = -1;  // on staleness

// A Value is the key of one buffer of a rank, not its memory.
struct Value {
  ValueKind kind = ValueKind::kActivation;
  int index = 0;         // parameter group, or block; 0 for kinds without either
  int micro_batch = -1;  // -1 for values of no single micro-batch
  Placement placement = {};
  Codec codec = Codec::kPlain;
  Tier tier = Tier::kDevice;
  // Which tensor of its block or of the batch it is, for activations and their gradients; for weights, gradients and
  // states on the host and in files which piece, counted from 1, where the group is updated in pieces.
  int tensor = 0;
  auto operator<=>(const Value&) const = default;
};

struct Op {
  OpKind kind = OpKind::kForward;
  Lane lane = Lane::kCompute;
  std::vector<Value> reads = {};
  std::vector<Value> writes = {};
  int block = -1;  // block that the op runs; -1 for ops of no block
  int micro_batch = -1;
  int axis = kNoAxis;  // axis of Program::mesh along which ranks run a collective, share a loss, or send
  // Index on `axis` of the rank at the other end of kSend or kReceive, or of the owner for kBroadcast and kReduce.
  int peer = -1;
  int staleness = 0;  // of kPull: steps of other ranks that the weights may lack at most, or kNoBound
  // Of kPush and kPull: parameter servers that are ranks of their own, without a Program; 0: ranks of the axis serve.
  int servers = 0;
  // A kAllReduce of one gradient may sum one range of its elements: that of `part`, of `parts` ranges of equal size. So
  // may a kPush and a kPull of one group: servers then update each range by itself.
  int part = 0, parts = 1;
  bool operator==(const Op&) const = default;
};

struct ValueInfo {
  int64_t bytes = 0;        // size on this rank, padding included
  bool persistent = false;  // true for a value that lives from step to step and is never released
  // Number of the buffer that the value lies in, which lives as long as the run; slots.h sets it. The slot of a
  // received value only makes receives wait, since that value has memory of its own. -1 = no slot; if the value is not
  // persistent, its first write takes memory and its release gives it back.
  int slot = -1;
  bool pooled = false;  // true for a value that shares slots with others of its kind, each from first write to release
  bool operator==(const ValueInfo&) const = default;
};

struct Program {
  int rank = 0;           // rank of the job that runs the ops
  int num_blocks = 0;     // blocks of the whole model, also where this rank runs some of them
  int micro_batches = 1;  // micro-batches of this rank in a step
  Mesh mesh;
  bool context_zigzag = false;  // true: ranks that divide tokens have a zigzag (nn/token_cut.h); false: a range each
  std::vector<std::vector<int>> block_groups;  // lists the parameter groups that each block reads
  std::map<Value, ValueInfo> values;           // holds every value that an op names
  // Gives the device bytes that an op of (kind, block) holds only while it runs, beside its values. They are negative
  // where values of the op share memory that is counted for each of them.
  std::map<std::pair<OpKind, int>, int64_t> scratch;
  // Lists tensors that the graph of a block refers to, so that the memory of an activation lives as long as the last of
  // these graphs. Where the activation itself holds nothing, the graph has a copy of its own.
  std::map<int, std::vector<spec::TensorId>> kept = {};
  std::vector<Op> ops;  // in the order in which lanes start them
  bool operator==(const Program&) const = default;

  // Each returns which part of the samples, of layers or of the tokens `rank` has, and of how many: 0 and 1 where no
  // ranks divide them.
  int data_place() const { return mesh.index(mesh.dividing(Divided::kSamples), rank); }
  int data_ranks() const { return mesh.size(mesh.dividing(Divided::kSamples)); }
  int tensor_place() const { return mesh.index(mesh.dividing(Divided::kLayers), rank); }
  int tensor_ranks() const { return mesh.size(mesh.dividing(Divided::kLayers)); }
  int context_place() const { return mesh.index(mesh.dividing(Divided::kTokens), rank); }
  int context_ranks() const { return mesh.size(mesh.dividing(Divided::kTokens)); }
};

}  // namespace herd::program
