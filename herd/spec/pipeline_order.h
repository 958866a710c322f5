// Defines the sequence in which the ranks of a pipeline run the passes of their stages over micro-batches.
//   A model is cut into ranks * stages_per_rank stages, one after the other. Wrapped, rank s % ranks has stage s.
//   Folded, rank s has stage s and stage 2 * ranks - 1 - s, so the first and the last stage share a rank. As text each
//   rank is a line of passes with their micro-batches: F is forward, B backward, W the gradients of weights in a
//   backward of two halves, and @1 means the second stage of the rank:
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

enum class Pass : uint8_t { kForward, kBackward, kWeights };  // kWeights: the second half of a backward in two halves

// A turn is one pass over the blocks of a stage.
struct Turn {
  Pass pass = Pass::kForward;
  int micro_batch = 0;
  int local_stage = 0;  // index of the stage among the rank's own
  auto operator<=>(const Turn&) const = default;
};

constexpr int64_t kMostTurns = int64_t{1} << 22;  // limit on the turns of all ranks of an order

struct PipelineOrder {
  int ranks = 1, stages_per_rank = 1, micro_batches = 1;
  bool folded = false;                   // REQUIRES two stages a rank
  std::vector<std::vector<Turn>> turns;  // of each rank
  int stages() const { return ranks * stages_per_rank; }
  int stage_of(int rank, int local_stage) const;
  int rank_of(int stage) const;
  int local_stage_of(int stage) const;
  bool splits_backward() const;  // tells whether any turn is of Pass::kWeights
  // Throws kBadConfig unless ranks, stages and micro-batches are 1 or more, and all their passes kMostTurns or fewer.
  void check_sizes() const;
  bool operator==(const PipelineOrder&) const = default;
};

// Returns when each turn of each rank ends if a pass takes one unit, a whole backward two, and messages none. Throws
// kBadConfig unless every rank runs every pass of its stages once, after the passes it needs, and either every backward
// or none is split. Also throws it where ranks wait for each other in a circle, which the error names.
std::vector<std::vector<int>> times_of(const PipelineOrder& order);

std::string to_text(const PipelineOrder& order);
// Throws kBadConfig for a text that breaks the grammar, or that times_of() refuses; `name` says where the text comes
// from.
PipelineOrder parse_pipeline_order(std::string_view text, const std::string& name);
PipelineOrder load_pipeline_order(const std::filesystem::path& path);

}  // namespace herd::spec
