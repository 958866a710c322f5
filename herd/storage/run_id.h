// The name of one run, apart from its folder's: a run keeps it through stops and restarts, and its metrics and
// checkpoints carry it. Threads: any.
#pragma once

#include <string>

namespace herd {

std::string new_run_id();  // 16 hexadecimal digits at random; throws kStorage where the system has none

inline constexpr char kRunNote[] = "run";  // the note of a checkpoint that holds its run's id

}  // namespace herd
