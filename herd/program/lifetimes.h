// Adds a release after the last access of each value that is not persistent, before its next write. A step follows
// itself, so that write may be in the next step. The release runs on the lane of that access. Releases that a program
// has already are replaced, so a second call changes nothing.
// Threads: pure.
#pragma once

#include "herd/program/program.h"

namespace herd::program {

Program add_releases(Program step);

}  // namespace herd::program
