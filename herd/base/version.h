// The version of the library that is linked: "0.1.0", semantic.   Threads: any.
#pragma once

namespace herd {

const char* version();

}  // namespace herd
