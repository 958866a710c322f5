// Writes which experts the tokens of a run go to into a folder, a file for each rank, and reads such a folder
// (docs/formats/routing.md).   Threads: one at a time.
#pragma once

#include <filesystem>
#include <fstream>
#include <utility>

#include "herd/nn/recorded_routing.h"

namespace herd::train {

// Records the routing of one rank.
class RoutingRecorder {
 public:
  RoutingRecorder(std::filesystem::path folder, int rank, int ranks)
      : folder_(std::move(folder)), rank_(rank), ranks_(ranks) {}
  // Makes the folder, and begins the file of this rank. Where the run goes on behind `resumed_step`, the file keeps the
  // steps up to it, and so do those of ranks that are no more, which rank 0 otherwise removes. Throws kStorage, and
  // kCorruptFile for a file that is no routing. REQUIRES one call, before the first write().
  void open(int64_t resumed_step);
  nn::RecordedRouting& routing() { return routing_; }  // what is not written yet
  void write();  // writes what routers have added since the last call. Throws kStorage

 private:
  std::filesystem::path folder_;
  int rank_, ranks_;
  std::ofstream file_;
  nn::RecordedRouting routing_;
};

// Reads the files of all ranks; what a later line says of a token counts. Throws kBadConfig where there is none, and
// kCorruptFile with file and line.
nn::RecordedRouting read_routing(const std::filesystem::path& folder);

}  // namespace herd::train
