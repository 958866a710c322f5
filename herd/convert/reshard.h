// Rewrites a checkpoint in the shards that another number of ranks would have saved, piece by piece. Every tensor keeps
// all its bits, optimizer states included, and step, run file and notes stay. Training does not need it, since any
// layout loads any other. It gives each rank a file of what that rank reads, or makes one file of all. Throws as
// CheckpointReader and AtomicFolder; kBadConfig for a number of ranks outside [1, 99999], and for more than one rank
// where the checkpoint has no run file. Threads: any, on different folders.
#pragma once

#include <cstdint>
#include <filesystem>

#include "herd/convert/transformers_folder.h"
#include "herd/storage/atomic_folder.h"
#include "herd/storage/shard_writer.h"

namespace herd::convert {

struct ReshardOptions {
  std::filesystem::path source, out;
  int ranks = 1;  // each gets one file
  Replace replace = Replace::kNever;
  Progress progress = {};
};

struct Resharded {
  int64_t step = 0, bytes = 0;
  int files = 0;
};

Resharded reshard(const ReshardOptions& options, FileSystem& files = FileSystem::system());

// Returns what each of `ranks` ranks saves of these tensors, in the order in which it does. Groups of the model's
// parameters are padded to a multiple of the ranks and cut evenly, and states are cut like their weights. Rank 0 saves
// a tensor that belongs to no weight.
std::vector<std::vector<ShardPiece>> shards_of(const Manifest& manifest, int ranks);

}  // namespace herd::convert
