// Proves that the ranks of a job write into one folder. Hosts without a shared file system do not, and would train
// until the first save. Threads: one.
#pragma once

#include <chrono>
#include <filesystem>

#include "herd/checkpoint/peers.h"

namespace herd::train {

// Each rank writes a probe file into the folder, and rank 0 waits up to `timeout` for those of other hosts to appear.
// Throws kBadConfig, the same on every rank, with the ranks and hosts whose files are missing. The files are gone when
// this returns or throws; it first removes those of killed processes. Collective.
void prove_shared_folder(const std::filesystem::path& folder, CheckpointPeers& peers,
                         std::chrono::milliseconds timeout = std::chrono::seconds(10));

}  // namespace herd::train
