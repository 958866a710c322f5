// Defines what the executor does for each kind of op, by a table from OpKind to a function. The executor knows models,
// tensors and collectives only through this table. Threads: built before the executor, read-only afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "herd/program/program.h"
#include "herd/runtime/lane.h"

namespace herd::runtime {

// Executes one op of step `step`, on the op's lane. Returns the end of what it has started and not finished; null where
// nothing is left to wait for. The release of what an operation reads runs on whichever thread next starts an op or
// waits, and must submit no job.
using Binding = std::function<EventPtr(const program::Op& op, int64_t step)>;
using BindingTable = std::map<program::OpKind, Binding>;

}  // namespace herd::runtime
