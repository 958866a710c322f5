// Makes the id of a run, which does not depend on its folder's name. A run keeps its id through stops and restarts, and
// its metrics and checkpoints carry it. Files are named by ids, so that what reads one checks it. Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace herd {

std::string new_run_id();  // returns 16 random hexadecimal digits; throws kStorage where the system has none

// Tells whether the text may be an id: 1 to 64 of 0-9, a-z, A-Z, _ and -.
bool is_run_id(std::string_view text);

inline constexpr char kRunIdRule[] = "a run's id is 1 to 64 of 0-9, a-z, A-Z, _ and -";

inline constexpr char kRunNote[] = "run";  // name of the note of a checkpoint that holds its run's id

}  // namespace herd
