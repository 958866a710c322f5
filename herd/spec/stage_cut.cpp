#include "herd/spec/stage_cut.h"

#include <algorithm>
#include <limits>
#include <string>

#include "herd/base/error.h"

namespace herd::spec {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-9;  // sums of the same flops in another order

class Cuts {
 public:
  Cuts(const std::vector<double>& layers, size_t stages) : stages_(stages), sums_{0} {
    for (const double flops : layers) sums_.push_back(sums_.back() + flops);
  }

  std::vector<int> best() const {
    const double most = table([](double so_far, double flops) { return std::max(so_far, flops); }).back().back();
    const auto squares =
        table([&](double so_far, double flops) { return flops > most * kRounding ? kNever : so_far + flops * flops; });
    std::vector<int> stage(blocks());
    for (size_t s = stages_, end = blocks(); s > 0; --s) {
      size_t begin = end - 1;
      for (size_t at = s - 1; at < end; ++at) {
        if (ends_at(squares, s, at, end, most) <= squares[s][end] * kRounding) {
          begin = at;
          break;
        }
      }
      std::fill(stage.begin() + static_cast<long>(begin), stage.begin() + static_cast<long>(end),
                static_cast<int>(s) - 1);
      end = begin;
    }
    return stage;
  }

 private:
  using Table = std::vector<std::vector<double>>;  // [stages][blocks]: of the best cut of the first blocks
  size_t blocks() const { return sums_.size() - 1; }
  double flops(size_t begin, size_t end) const { return sums_[end] - sums_[begin]; }
  double ends_at(const Table& squares, size_t s, size_t begin, size_t end, double most) const {
    const double own = flops(begin, end);
    return own > most * kRounding ? kNever : squares[s - 1][begin] + own * own;
  }

  template <class Add>
  Table table(const Add& add) const {
    Table best(stages_ + 1, std::vector<double>(blocks() + 1, kNever));
    best[0][0] = 0;
    for (size_t s = 1; s <= stages_; ++s) {
      for (size_t end = s; end <= blocks(); ++end) {
        for (size_t begin = s - 1; begin < end; ++begin) {
          if (best[s - 1][begin] == kNever) continue;
          best[s][end] = std::min(best[s][end], add(best[s - 1][begin], flops(begin, end)));
        }
      }
    }
    return best;
  }

  size_t stages_;
  std::vector<double> sums_;  // flops of the blocks before each
};

}  // namespace

double arithmetic_of(const BlockShape& block) {
  double flops = 0;
  for (const Cost* cost : {&block.forward, &block.backward}) flops += cost->matmul_flops + cost->attention_flops;
  return flops;
}

std::vector<int> stage_of_blocks(const ModelTable& model, int stages) {
  std::vector<double> layers;  // flops of each; blocks of one layer follow each other
  std::vector<size_t> layer_of;
  for (const BlockShape& block : model.blocks) {
    if (layer_of.empty() || block.layer != model.blocks[layer_of.size() - 1].layer || block.layer < 0)
      layers.push_back(0);
    layers.back() += arithmetic_of(block);
    layer_of.push_back(layers.size() - 1);
  }
  if (stages < 1 || static_cast<size_t>(stages) > layers.size()) {
    throw Error(Code::kBadConfig,
                "the stages of a pipeline, mesh.pp times those of a rank, must not exceed the blocks of the model: " +
                    std::to_string(stages) + " > " + std::to_string(layers.size()) +
                    "\n  fix: a product of mesh.pp and strategy.stages_per_rank of at most " +
                    std::to_string(layers.size()));
  }
  const std::vector<int> of_layers = Cuts(layers, static_cast<size_t>(stages)).best();
  std::vector<int> out;
  for (const size_t layer : layer_of) out.push_back(of_layers[layer]);
  return out;
}

BlockInterval blocks_of_stage(const std::vector<int>& stage_of_blocks, int stage) {
  const auto [begin, end] = std::equal_range(stage_of_blocks.begin(), stage_of_blocks.end(), stage);
  return {static_cast<size_t>(begin - stage_of_blocks.begin()), static_cast<size_t>(end - stage_of_blocks.begin())};
}

}  // namespace herd::spec
