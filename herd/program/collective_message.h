// Defines what a collective op moves, and of what. Threads: pure.
#pragma once

#include "herd/program/program.h"

namespace herd::program {

// Bytes of the whole message of a collective: of what it reads or what it writes, whichever is the whole. What a
// reduction adds to in its shards is no part of it.
int64_t message_bytes(const Program& step, const Op& op);

// A value of this kind that is whole along every axis, plain, on the device.
inline bool is_whole(const Value& value, ValueKind kind) {
  return value == Value{kind, value.index, value.micro_batch};
}

// What a block hands on, or its gradient.
inline bool is_activation(const Value& value) {
  return value.kind == ValueKind::kActivation || value.kind == ValueKind::kActivationGradient;
}

// An op in which all ranks of a group of its axis take part.
bool is_collective(const Op& op);

// The axis that shards of weights and gradients are cut over; kNoAxis if there are none.
int shard_axis(const Program& step);

}  // namespace herd::program
