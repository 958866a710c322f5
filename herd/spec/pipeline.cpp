#include "herd/spec/pipeline.h"

#include <algorithm>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/spec/nearest_name.h"

namespace herd::spec {
namespace {

void check_sizes(int stages, int micro_batches, int stage, int chunks) {
  if (stages >= 1 && micro_batches >= 1 && chunks >= 1 && stage >= 0 && stage < stages) return;
  throw Error(Code::kBadConfig, "a pipeline has at least one stage, micro-batch and chunk, and stages 0 to p-1: got " +
                                    std::to_string(stages) + " stages, " + std::to_string(micro_batches) +
                                    " micro-batches, " + std::to_string(chunks) + " chunks, stage " +
                                    std::to_string(stage) + "\n  fix: mesh.pp = 1 for a run without a pipeline");
}

}  // namespace

Pipeline parse_pipeline(std::string_view name) {
  // In the order of Pipeline.
  const std::vector<std::string> names = {"gpipe", "1f1b", "interleaved", "zero_bubble_h1", "zero_bubble_v"};
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) {
    throw Error(Code::kBadConfig, "no pipeline is named \"" + std::string(name) + "\"\n  fix: did you mean \"" +
                                      nearest_name(name, names) + "\"?");
  }
  return static_cast<Pipeline>(at - names.begin());
}

double bubble_fraction(Pipeline kind, int stages, int micro_batches, int chunks) {
  check_sizes(stages, micro_batches, 0, chunks);
  const double p = stages, m = micro_batches;
  switch (kind) {
    case Pipeline::kInterleaved:
      return (p - 1) / (chunks * m + p - 1);
    case Pipeline::kZeroBubbleH1:
      return (p - 1) / (3 * m + p - 1);
    case Pipeline::kZeroBubbleV: {
      const double gap = std::max({3 * (p - m), 2 * p - 2 - m, 0.0});
      return gap / (6 * m + gap);
    }
    default:
      return (p - 1) / (m + p - 1);
  }
}

double micro_batches_in_flight(Pipeline kind, int stages, int micro_batches, int stage, int chunks) {
  check_sizes(stages, micro_batches, stage, chunks);
  if (kind == Pipeline::kGpipe) return micro_batches;
  if (kind == Pipeline::kZeroBubbleV) return std::min(micro_batches, stages);
  if (kind != Pipeline::kInterleaved) return std::min(micro_batches, stages - stage);
  // Forwards of chunks that begin before the first backward of the rank.
  const double forwards = (chunks - 1.0) * stages + 2.0 * (stages - 1 - stage) + 1;
  return std::min<double>(micro_batches, forwards / chunks);
}

}  // namespace herd::spec
