// Writes and reads schedules as text: tests compare it with golden files, and `herd show schedule --text` prints it.
// Grammar: docs/formats/schedule.md. parse_schedule(to_text(s)) == s.
//
//   herd-schedule 1
//   collective all_reduce
//   algorithm ring
//   rank 0 of 2
//   elements 4 fp32 accumulate fp32
//   memory scratch 0 stage 0
//   steps 4
//   send -> 1 input[2,4)
//   receive_reduce <- 1 output[0,2) = input[0,2) complete
//   send -> 1 output[0,2)
//   receive <- 1 output[2,4)
// Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "herd/schedule/schedule.h"

namespace herd {

std::string to_text(const Schedule& schedule);

// Throws kCorruptFile with the line and the rule it breaks. The result has the shape of a schedule; verify() tells
// whether it is right.
Schedule parse_schedule(std::string_view text);

}  // namespace herd
