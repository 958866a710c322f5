// What a collective op moves, and of what. Threads: pure.
#pragma once

#include "herd/program/program.h"

namespace herd::program {

// Bytes of the whole message of a gather or reduce: of what it reads or what it writes, whichever is the whole. What a
// reduction adds to in its shards is no part of it.
int64_t message_bytes(const Program& step, const Op& op);

inline bool is_whole(const Value& value, ValueKind kind) { return value.kind == kind && value.form == Form::kFull; }

// A reduction that leaves each rank a shard of the sum.
bool scatters(const Op& op);

// The axis that shards of weights and gradients are cut over; empty if there are none.
std::string shard_axis(const Program& step);

}  // namespace herd::program
