#include "herd/spec/stage_cut.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "herd/base/error.h"

namespace herd::spec {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-9;  // allows for sums of the same flops in another order

struct Layers {
  std::vector<double> flops;     // of each layer; blocks of one layer follow each other
  std::vector<size_t> of_block;  // the layer of each block
  std::vector<double> borders;  // FLOPs that a border before each layer, or after the last, counts as on both its sides
};

// Cuts layers into stages that follow each other. Takes the cut whose largest stage is smallest and, of these, the one
// with the smallest sum of squares of the stages' FLOPs.
class Cuts {
 public:
  Cuts(const Layers& layers, size_t stages) : stages_(stages), borders_(layers.borders), sums_{0} {
    for (const double flops : layers.flops) sums_.push_back(sums_.back() + flops);
  }

  std::vector<int> best() const {
    const double max_flops = table([](double so_far, double flops) { return std::max(so_far, flops); }).back().back();
    const auto squares = table(
        [&](double so_far, double flops) { return flops > max_flops * kRounding ? kNever : so_far + flops * flops; });
    std::vector<int> stage(blocks());
    for (size_t s = stages_, end = blocks(); s > 0; --s) {
      size_t begin = end - 1;
      for (size_t at = s - 1; at < end; ++at) {
        if (with_last_stage(squares, s, at, end, max_flops) <= squares[s][end] * kRounding) {
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
  using Table = std::vector<std::vector<double>>;  // [stages][blocks]: value of the best cut of the first blocks
  size_t blocks() const { return sums_.size() - 1; }
  double flops(size_t begin, size_t end) const { return sums_[end] - sums_[begin] + borders_[begin] + borders_[end]; }
  // Returns the sum of squares of the best cut whose stage `s` is the blocks [begin, end).
  double with_last_stage(const Table& squares, size_t s, size_t begin, size_t end, double max_flops) const {
    const double last = flops(begin, end);
    return last > max_flops * kRounding ? kNever : squares[s - 1][begin] + last * last;
  }

  // `add` gives the value of a cut from the value without its last stage and the FLOPs of that stage.
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
  const std::vector<double>& borders_;
  std::vector<double> sums_;  // FLOPs of the blocks before each block, and of all
};

// Returns the bytes of the tensors that cross a border before each block, and back as gradients, where each rank has
// one stage.
std::vector<double> border_bytes(const ModelTable& model) {
  std::vector<double> out(model.blocks.size() + 1, 0);
  const std::vector<bool> have_backward = model.have_backward();
  for (const auto& [tensor, readers] : model.readers()) {
    if (tensor.producer == 0) continue;
    const auto made = static_cast<size_t>(tensor.producer);
    const bool gradient = have_backward[made - 1] && model.is_differentiable(tensor);
    for (size_t b = made; b <= static_cast<size_t>(readers.back()); ++b)
      out[b] += static_cast<double>(model.tensor_bytes(tensor)) * (gradient ? 2 : 1);
  }
  return out;
}

Layers layers_of(const ModelTable& model) {
  Layers layers;
  for (const BlockShape& block : model.blocks) {
    if (layers.of_block.empty() || block.layer != model.blocks[layers.of_block.size() - 1].layer || block.layer < 0)
      layers.flops.push_back(0);
    layers.flops.back() += flops_of(block);
    if (model.is_chain())
      layers.flops.back() += kFlopsPerByte * (block.forward.memory_bytes + block.backward.memory_bytes);
    layers.of_block.push_back(layers.flops.size() - 1);
  }
  layers.borders.assign(layers.flops.size() + 1, 0);
  if (!model.is_chain()) return layers;
  const std::vector<double> bytes = border_bytes(model);
  for (size_t b = model.blocks.size(); b-- > 0;) layers.borders[layers.of_block[b]] = kFlopsPerBorderByte * bytes[b];
  return layers;
}

// Holds the FLOPs of the busiest rank and of the largest stage, and the sum of squares of the stages' FLOPs.
using CutCost = std::array<double, 3>;
CutCost cost_of_cut(const Layers& layers, const std::vector<int>& stage_of_layers,
                    const std::vector<int>& rank_of_stage) {
  std::vector<double> stages(rank_of_stage.size(), 0), ranks(rank_of_stage.size(), 0);
  for (size_t i = 0; i < layers.flops.size(); ++i) {
    const auto stage = static_cast<size_t>(stage_of_layers[i]);
    stages[stage] += layers.flops[i];
    if (i == 0 || stage_of_layers[i - 1] == stage_of_layers[i] || rank_of_stage[stage - 1] == rank_of_stage[stage])
      continue;
    stages[stage - 1] += layers.borders[i];
    stages[stage] += layers.borders[i];
  }
  double squares = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    ranks[static_cast<size_t>(rank_of_stage[s])] += stages[s];
    squares += stages[s] * stages[s];
  }
  return {*std::max_element(ranks.begin(), ranks.end()), *std::max_element(stages.begin(), stages.end()), squares};
}

bool is_better(const CutCost& a, const CutCost& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] * kRounding < b[i]) return true;
    if (b[i] * kRounding < a[i]) return false;
  }
  return false;
}

// Moves one layer at a border to its neighbour, where that gains most, until no move gains.
void move_borders(const Layers& layers, const std::vector<int>& rank_of_stage, std::vector<int>& stage) {
  CutCost best = cost_of_cut(layers, stage, rank_of_stage);
  for (size_t moved = layers.flops.size(); moved != 0;) {
    moved = 0;
    int to = 0;
    for (size_t i = 1; i + 1 < layers.flops.size(); ++i) {
      for (const int neighbour : {stage[i - 1], stage[i + 1]}) {
        const bool at_a_border = stage[i - 1] != stage[i + 1], all_of_its_stage = stage[i - 1] + 2 == stage[i + 1];
        if (neighbour == stage[i] || !at_a_border || all_of_its_stage) continue;
        const int old_stage = std::exchange(stage[i], neighbour);
        const CutCost cost = cost_of_cut(layers, stage, rank_of_stage);
        if (is_better(cost, best)) best = cost, moved = i, to = neighbour;
        stage[i] = old_stage;
      }
    }
    if (moved != 0) stage[moved] = to;
  }
}

std::vector<int> spread_over_blocks(const Layers& layers, const std::vector<int>& stage_of_layers) {
  std::vector<int> out;
  for (const size_t layer : layers.of_block) out.push_back(stage_of_layers[layer]);
  return out;
}

std::vector<int> balanced(const Layers& layers, int stages) {
  if (stages < 1 || static_cast<size_t>(stages) > layers.flops.size()) {
    throw Error(Code::kBadConfig,
                "the stages of a pipeline, mesh.pp times those of a rank, must not exceed the blocks of the model: " +
                    std::to_string(stages) + " > " + std::to_string(layers.flops.size()) +
                    "\n  fix: a product of mesh.pp and strategy.stages_per_rank of at most " +
                    std::to_string(layers.flops.size()));
  }
  return Cuts(layers, static_cast<size_t>(stages)).best();
}

}  // namespace

double flops_of(const BlockShape& block) {
  double flops = 0;
  for (const PassCost* cost : {&block.forward, &block.backward}) flops += cost->matmul_flops + cost->attention_flops;
  return flops;
}

std::vector<int> stage_of_blocks(const ModelTable& model, int stages) {
  const Layers layers = layers_of(model);
  return spread_over_blocks(layers, balanced(layers, stages));
}

std::vector<int> stage_of_blocks(const ModelTable& model, const std::vector<int>& rank_of_stage) {
  const Layers layers = layers_of(model);
  std::vector<int> stage = balanced(layers, static_cast<int>(rank_of_stage.size()));
  move_borders(layers, rank_of_stage, stage);
  return spread_over_blocks(layers, stage);
}

std::vector<std::vector<TensorId>> border_tensors(const std::map<TensorId, std::vector<int>>& readers,
                                                  const std::vector<int>& stage_of_blocks,
                                                  const std::vector<int>& rank_of_stage) {
  std::vector<std::vector<TensorId>> out(rank_of_stage.size());
  for (const auto& [tensor, blocks] : readers) {
    if (tensor.producer == 0) continue;
    const auto made = static_cast<size_t>(stage_of_blocks[static_cast<size_t>(tensor.producer) - 1]);
    std::set<int> holding = {rank_of_stage[made]}, needing;  // ranks
    for (const int block : blocks)
      needing.insert(rank_of_stage[static_cast<size_t>(stage_of_blocks[static_cast<size_t>(block)])]);
    std::vector<size_t> receiving;  // stages whose rank may receive the tensor
    for (size_t stage = made + 1; stage < rank_of_stage.size(); ++stage) {
      if (holding.insert(rank_of_stage[stage]).second) receiving.push_back(stage);
    }
    for (auto stage = receiving.rbegin(); stage != receiving.rend(); ++stage) {
      if (!needing.contains(rank_of_stage[*stage])) continue;  // it has no reader and nobody to send it on to
      out[*stage - 1].push_back(tensor);
      needing.insert(rank_of_stage[*stage - 1]);
    }
  }
  return out;
}

BlockInterval blocks_of_stage(const std::vector<int>& stage_of_blocks, int stage) {
  const auto [begin, end] = std::equal_range(stage_of_blocks.begin(), stage_of_blocks.end(), stage);
  return {static_cast<size_t>(begin - stage_of_blocks.begin()), static_cast<size_t>(end - stage_of_blocks.begin())};
}

}  // namespace herd::spec
