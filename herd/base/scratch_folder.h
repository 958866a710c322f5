// Makes a folder for files whose place no user named, below TMPDIR, or else /tmp. Threads: any.
#pragma once

#include <string>

namespace herd {

// Makes and returns "/tmp/herd-run-h7Kq2x" for the name "herd-run"; the caller removes it. Throws kStorage.
std::string make_scratch_folder(const std::string& name);

}  // namespace herd
