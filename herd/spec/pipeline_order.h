// In which sequence the ranks of a pipeline run the passes of their stages over micro-batches.
//   A model is cut into ranks * stages_per_rank stages, one after the other. Wrapped, stage s is of rank s % ranks;
//   folded, of rank s on the way there and of rank 2 * ranks - 1 - s on the way back, so that the first and the last
//   stage share a rank.
//   Text, one line a rank, F forward, B backward, W the gradients of weights of a backward in two halves, each with its
//   micro-batch, and @1 for the second stage of the rank:
//     herd-pipeline-order 1
//     ranks 2 stages_per_rank 2 micro_batches 1 folded
//     rank 0: F0 F0@1 B0@1 W0@1 B0 W0
//     rank 1: F0 F0@1 B0@1 W0@1 B0 W0
//   '#' begins a comment.
// Threads: pure.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace herd::spec {

enum class Pass : uint8_t { kForward, kBackward, kWeights };  // of a backward in two halves the second

// One pass over the blocks of a stage.
struct Turn {
  Pass pass = Pass::kForward;
  int micro_batch = 0;
  int chunk = 0;  // which stage of the rank
  auto operator<=>(const Turn&) const = default;
};

constexpr int64_t kMostTurns = int64_t{1} << 22;  // of all ranks of an order

struct PipelineOrder {
  int ranks = 1, stages_per_rank = 1, micro_batches = 1;
  bool folded = false;                   // REQUIRES two stages a rank
  std::vector<std::vector<Turn>> turns;  // of each rank
  int stages() const { return ranks * stages_per_rank; }
  int stage_of(int rank, int chunk) const;
  int rank_of(int stage) const;
  int chunk_of(int stage) const;
  bool splits_backward() const;  // whether any turn is of Pass::kWeights
  // Throws kBadConfig unless there are ranks, stages and micro-batches, and all their passes are kMostTurns or fewer.
  void check_sizes() const;
  bool operator==(const PipelineOrder&) const = default;
};

// When each turn of each rank ends if a pass takes a unit, a whole backward two, and messages nothing.
// Throws kBadConfig unless every rank runs every pass of its stages once, a pass after those that it needs, all of them
// split the backward or none does, and the ranks never wait for each other in a circle, which the error names.
std::vector<std::vector<int>> times_of(const PipelineOrder& order);

std::string to_text(const PipelineOrder& order);
// Throws kBadConfig for what is no such text, or what times_of() refuses; `name` says where it comes from.
PipelineOrder parse_pipeline_order(std::string_view text, const std::string& name);
PipelineOrder load_pipeline_order(const std::filesystem::path& path);

}  // namespace herd::spec
