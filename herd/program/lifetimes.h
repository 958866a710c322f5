// Adds a release after the last access of each value that is not persistent, before its next write; the loop body wraps
// around. The release runs on the lane of that access. A program that has releases already gets new ones: same input
// without them, same output.
// Threads: pure.
#pragma once

#include "herd/program/program.h"

namespace herd::program {

Program add_releases(Program step);

}  // namespace herd::program
