// Loads a checkpoint into tensors of any layout: each tensor takes its own slice from whichever shards hold it.
// The bits are those that were saved, except that floating types are converted into each other.
// Threads: one at a time for each reader.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/checkpoint/peers.h"
#include "herd/storage/checkpoint_reader.h"

namespace herd {

// Fills the tensors in place. `all_names` are the names that all ranks together load; empty = those of `tensors`.
// Throws kBadConfig, before any tensor is touched, if a tensor is missing in the checkpoint. Throws it, too, if the
// checkpoint holds tensors that nobody loads (each named), or if a global shape differs. A floating tensor that is
// stored as integers, or the reverse, is refused alike. Throws kCorruptFile where CheckpointReader does.
void load_tensors(CheckpointReader& reader, std::vector<NamedTensor>& tensors,
                  const std::set<std::string>& all_names = {});

// Returns, on every rank, the newest whole checkpoint below `root` as rank 0 sees it; nothing if there is none. Logs
// what is wrong with newer ones that are broken. Collective.
std::optional<std::filesystem::path> find_resumable(const std::filesystem::path& root, CheckpointPeers& peers);

}  // namespace herd
