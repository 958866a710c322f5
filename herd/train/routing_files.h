// Writes which experts the tokens of a run go to into a folder, a file for each rank, and reads such a folder
// (docs/formats/routing.md).   Threads: one at a time.
#pragma once

#include <filesystem>
#include <fstream>

#include "herd/nn/recorded_routing.h"

namespace herd::train {

// Records the routing of one rank.
class RoutingRecorder {
 public:
  // Makes the folder, and begins the file of this rank of `ranks`; where the run goes on it adds to the file. Rank 0
  // of one that begins removes what more ranks have left there. Throws kStorage.
  RoutingRecorder(const std::filesystem::path& folder, int rank, int ranks, bool goes_on);
  nn::RecordedRouting& routing() { return routing_; }  // what is not written yet
  void write();  // writes what routers have added since the last call. Throws kStorage

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  nn::RecordedRouting routing_;
};

// Reads the files of all ranks; what a later line says of a token counts. Throws kBadConfig where there is none, and
// kCorruptFile with file and line.
nn::RecordedRouting read_routing(const std::filesystem::path& folder);

}  // namespace herd::train
