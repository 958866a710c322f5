// A new folder for what no user named, in the folder for temporary files (TMPDIR, or /tmp). Threads: any.
#pragma once

#include <string>

namespace herd {

// "/tmp/herd-run-h7Kq2x" for "herd-run"; the caller removes it. Throws kStorage.
std::string make_scratch_folder(const std::string& name);

}  // namespace herd
