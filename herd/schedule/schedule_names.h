// Names a schedule's enums, as text files and messages write them. Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "herd/schedule/schedule.h"

namespace herd {

std::string_view collective_name(Collective collective);  // returns "all_reduce", ..
std::string_view space_name(Space space);                 // returns "input", "output", "scratch" or "stage"
std::string_view step_kind_name(StepKind kind);           // returns "send", "receive_reduce", ..

Collective parse_collective(std::string_view name);  // throws kBadConfig with the valid names

// Returns "rank 3 output[128,256)".
std::string describe(const Slice& slice);
// Returns "send to 1: rank 0 output[0,8)".
std::string describe(const Step& step);

}  // namespace herd
