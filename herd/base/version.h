// Tells the version of the library that is linked.   Threads: any.
#pragma once

namespace herd {

const char* version();  // returns "0.1.0": major, minor and patch of a semantic version

}  // namespace herd
