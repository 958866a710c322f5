// Makes the id of a run, which does not depend on its folder's name. A run keeps its id through stops and restarts, and
// its metrics and checkpoints carry it. Threads: any.
#pragma once

#include <string>

namespace herd {

std::string new_run_id();  // returns 16 random hexadecimal digits; throws kStorage where the system has none

inline constexpr char kRunNote[] = "run";  // name of the note of a checkpoint that holds its run's id

}  // namespace herd
