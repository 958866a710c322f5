// Tells which ops are collectives, how many bytes they move, which values they move, and which axis cuts weights.
// Threads: pure.
#pragma once

#include <map>

#include "herd/program/program.h"

namespace herd::program {

// Returns the bytes of a collective's whole message: of what the op reads or of what it writes, whichever is the whole.
// Those of an all-to-all are what each rank holds, before and after; where rows go to experts or come back, those of
// the rank's own tokens. Those of a broadcast or a reduce are moved_values(). Shards that a reduce-scatter adds to do
// not count.
int64_t message_bytes(const Program& step, const Op& op);

// Holds elements [begin, end) of a value.
struct ElementRange {
  int64_t begin = 0, end = 0;
};
// Returns the range of a value of so many elements that the op sums; all of it where the op has no parts.
ElementRange part_of(int64_t elements, const Op& op);

// Returns the collective by which an op moves its message. An all-reduce of top-k lists gathers the lists of all ranks.
OpKind traffic_kind(const Op& op);

// Tells whether an op is a message to or from parameter servers: a push, or a pull.
inline bool is_served(const Op& op) { return op.kind == OpKind::kPush || op.kind == OpKind::kPull; }
// Returns the bytes of the gradient that an op pushes, in its codec, or of the weights that it pulls. REQUIRES
// is_served(op).
int64_t served_bytes(const Program& step, const Op& op);
// Returns what the op moves of a part of the gradients or weights that has so many bytes in fp32. REQUIRES
// is_served(op).
int64_t served_part(const Program& step, const Op& op, int64_t bytes);
// Returns the bytes that the rank sends for a push, or as a server for the pulls of the other ranks. REQUIRES
// is_served(op).
int64_t served_bytes_sent(const Program& step, const Op& op);

// Tells whether a value is of this kind, whole along every axis, plain, and on the device.
inline bool is_plain_whole(const Value& value, ValueKind kind) {
  return value == Value{kind, value.index, value.micro_batch};
}

// Tells whether a value is an activation or the gradient of one.
inline bool is_activation_or_gradient(const Value& value) {
  return value.kind == ValueKind::kActivation || value.kind == ValueKind::kActivationGradient;
}

// Tells whether an op is an all-gather, an all-reduce, a reduce-scatter, an all-to-all, a broadcast or a reduce, in
// which all ranks of a group take part.
bool is_collective(const Op& op);
// Tells whether an op is an all-to-all that gives rows to the ranks of their experts, or brings them back.
bool moves_rows_of_experts(const Op& op);
// Tells whether ranks that share experts tell each other what their routers have chosen.
bool gathers_routing(const Op& op);
// Tells whether an op is a broadcast or a reduce, of which one rank of the group has what the others lack.
inline bool is_rooted(const Op& op) { return op.kind == OpKind::kBroadcast || op.kind == OpKind::kReduce; }
// Returns the values that every rank of a broadcast writes, or of a reduce sums: all but the owner's. REQUIRES
// is_rooted(op).
std::vector<Value> moved_values(const Op& op);

// Returns by parameter group the axis that cuts its weights and gradients into shards, or one of whose ranks owns them;
// none of groups without either.
std::map<int, int> weight_shard_axes(const Program& step);

}  // namespace herd::program
