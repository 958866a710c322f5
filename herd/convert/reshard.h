// A checkpoint rewritten in the shards that another number of ranks would have saved, as a stream: every tensor with
// all its bits, optimizer states included; step, run file and notes as they are. Training needs none of this, since any
// layout loads any other; it puts what each rank reads into a file of its own, and one file where one is wanted. Throws
// as CheckpointReader and AtomicFolder; kBadConfig for ranks that there can't be, and for several where the checkpoint
// has no run file. Threads: any, on different folders.
#pragma once

#include <cstdint>
#include <filesystem>

#include "herd/convert/transformers_folder.h"
#include "herd/storage/atomic_folder.h"
#include "herd/storage/shard_writer.h"

namespace herd::convert {

struct ReshardOptions {
  std::filesystem::path source, out;
  int ranks = 1;  // a file for each
  Replace replace = Replace::kNever;
  Progress progress = {};
};

struct Resharded {
  int64_t step = 0, bytes = 0;
  int files = 0;
};

Resharded reshard(const ReshardOptions& options, FileSystem& files = FileSystem::system());

// What each of `ranks` ranks saves of these tensors, in the order in which it does: groups of the model's parameters,
// padded to a multiple of the ranks and cut evenly; the states like their weights. A tensor that is no weight's is rank
// 0's.
std::vector<std::vector<ShardPiece>> shards_of(const Manifest& manifest, int ranks);

}  // namespace herd::convert
