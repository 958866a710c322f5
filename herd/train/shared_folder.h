// Proves that the ranks of a job write into one folder, as hosts without a shared file system do not: they would train
// until the first save. Threads: one.
#pragma once

#include <chrono>
#include <filesystem>

#include "herd/checkpoint/peers.h"

namespace herd::train {

// Each rank writes a probe file into the folder, and rank 0 sees all of them; what another host wrote may come late, by
// up to `timeout`. Throws the same error on every rank, with the ranks and hosts it is about: kBadConfig. The files
// are gone when this returns or throws; those that killed processes left are removed first. Collective.
void prove_shared_folder(const std::filesystem::path& folder, CheckpointPeers& peers,
                         std::chrono::milliseconds timeout = std::chrono::seconds(10));

}  // namespace herd::train
