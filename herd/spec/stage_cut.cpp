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
  std::vector<size_t> begins;    // the first block of each layer, and the number of blocks
  std::vector<double> borders;  // FLOPs that a border before each layer, or after the last, counts as on both its sides
  std::vector<double> border_bytes;  // bytes that cross it
  BlockInterval blocks(size_t begin, size_t end) const { return {begins[begin], begins[end]}; }
};

// Cuts layers into stages that follow each other, in the order of stage_cut.h.
class Cuts {
 public:
  Cuts(const Layers& layers, size_t stages, const StageMemory& memory)
      : layers_(layers), stages_(stages), memory_(memory), sums_{0} {
    for (const double flops : layers.flops) sums_.push_back(sums_.back() + flops);
    if (memory.held) held_.assign(stages, std::vector<double>((size() + 1) * (size() + 1), -1));
  }

  std::vector<int> best() {
    if (memory_.held) {
      max_bytes_ = memory_.budget;
      const bool fits = max_bytes_ == kNever || least_max_flops() < kNever;
      if (!fits) max_bytes_ = kNever, max_bytes_ = least_max_bytes();
    }
    max_flops_ = least_max_flops();
    if (memory_.held) {
      find_ends();
      max_bytes_ = least_max_bytes();
    }
    const auto sums = table<BordersAndSquares>(
        {kNever, kNever}, {0, 0}, [&](const BordersAndSquares& so_far, size_t s, size_t begin, size_t end) {
          return with_stage(so_far, s, begin, end);
        });
    std::vector<int> stage(size());
    for (size_t s = stages_, end = size(); s > 0; --s) {
      size_t begin = end - 1;
      for (size_t at = s - 1; at < end; ++at) {
        if (is_as_good(with_stage(sums[s - 1][at], s, at, end), sums[s][end])) {
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
  // Holds the bytes over all borders, where memory counts, and the sum of squares of the stages' FLOPs.
  using BordersAndSquares = std::pair<double, double>;
  size_t size() const { return sums_.size() - 1; }  // layers
  double flops(size_t begin, size_t end) const {
    return sums_[end] - sums_[begin] + layers_.borders[begin] + layers_.borders[end];
  }
  // Returns the bytes of stage `s`, counted from 1, with the layers [begin, end).
  double bytes(size_t s, size_t begin, size_t end) {
    double& held = held_[s - 1][begin * (size() + 1) + end];
    if (held < 0) held = memory_.held(static_cast<int>(s) - 1, layers_.blocks(begin, end));
    return held;
  }
  // Finds where stages may end, since the stages behind can have the other layers with at most max_flops_ each.
  void find_ends() {
    ends_.assign(stages_ + 1, std::vector<bool>(size() + 1, false));
    ends_[stages_][size()] = true;
    for (size_t s = stages_; s > 0; --s) {
      for (size_t begin = s - 1; begin < size(); ++begin) {
        for (size_t end = begin + 1; end <= size() && !ends_[s - 1][begin]; ++end)
          ends_[s - 1][begin] = ends_[s][end] && flops(begin, end) <= max_flops_ * kRounding;
      }
    }
  }
  bool allowed(size_t s, size_t begin, size_t end) {
    if (flops(begin, end) > max_flops_ * kRounding) return false;
    if (!ends_.empty() && !ends_[s][end]) return false;
    return max_bytes_ == kNever || bytes(s, begin, end) <= max_bytes_ * kRounding;
  }
  double least_max_flops() {
    return table<double>(kNever, 0,
                         [&](double so_far, size_t s, size_t begin, size_t end) {
                           return so_far < kNever && allowed(s, begin, end) ? std::max(so_far, flops(begin, end))
                                                                            : kNever;
                         })
        .back()
        .back();
  }
  double least_max_bytes() {
    return table<double>(kNever, 0,
                         [&](double so_far, size_t s, size_t begin, size_t end) {
                           return so_far < kNever && allowed(s, begin, end) ? std::max(so_far, bytes(s, begin, end))
                                                                            : kNever;
                         })
        .back()
        .back();
  }
  BordersAndSquares with_stage(const BordersAndSquares& so_far, size_t s, size_t begin, size_t end) {
    if (so_far.second == kNever || !allowed(s, begin, end)) return {kNever, kNever};
    const double last = flops(begin, end);
    return {so_far.first + (memory_.held ? layers_.border_bytes[begin] : 0), so_far.second + last * last};
  }
  static bool is_as_good(const BordersAndSquares& a, const BordersAndSquares& b) {
    return a.first <= b.first && a.second <= b.second * kRounding;
  }

  // Returns, for each number of stages and of layers, the least value of the cuts of the first layers into so many
  // stages. `add` gives it from the value without the last stage s, counted from 1, of the layers [begin, end). Only
  // stages behind which the others still can follow count.
  template <class Value, class Add>
  std::vector<std::vector<Value>> table(Value never, Value none, const Add& add) {
    std::vector<std::vector<Value>> best(stages_ + 1, std::vector<Value>(size() + 1, never));
    best[0][0] = none;
    for (size_t s = 1; s <= stages_; ++s) {
      const size_t first_end = s == stages_ ? size() : s, last_end = size() - (stages_ - s);
      for (size_t end = first_end; end <= last_end; ++end) {
        for (size_t begin = s - 1; begin < end; ++begin) {
          if (best[s - 1][begin] == never) continue;
          best[s][end] = std::min(best[s][end], add(best[s - 1][begin], s, begin, end));
        }
      }
    }
    return best;
  }

  const Layers& layers_;
  size_t stages_;
  const StageMemory& memory_;
  std::vector<double> sums_;                        // FLOPs of the layers before each layer, and of all
  std::vector<std::vector<double>> held_;           // by stage and interval: its bytes, once they are known
  double max_flops_ = kNever, max_bytes_ = kNever;  // what a stage may have
  std::vector<std::vector<bool>> ends_;  // by stage and layer: whether it may end there; empty = not yet known
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
  for (size_t b = 0; const int layer : layer_of_blocks(model)) {
    const BlockShape& block = model.blocks[b];
    layers.of_block.push_back(static_cast<size_t>(layer));
    if (layers.of_block.back() == layers.flops.size()) layers.flops.push_back(0), layers.begins.push_back(b);
    layers.flops.back() += flops_of(block);
    if (model.is_chain())
      layers.flops.back() += kFlopsPerByte * (block.forward.memory_bytes + block.backward.memory_bytes);
    ++b;
  }
  layers.begins.push_back(model.blocks.size());
  layers.borders.assign(layers.flops.size() + 1, 0);
  layers.border_bytes = layers.borders;
  const std::vector<double> bytes = border_bytes(model);
  for (size_t b = model.blocks.size(); b-- > 0;) {
    layers.border_bytes[layers.of_block[b]] = bytes[b];
    if (model.is_chain()) layers.borders[layers.of_block[b]] = kFlopsPerBorderByte * bytes[b];
  }
  return layers;
}

// Holds the bytes above the budget on the rank that holds most, the FLOPs of the busiest rank and of the largest stage,
// the bytes of the rank that holds most, and the sum of squares of the stages' FLOPs.
using CutCost = std::array<double, 5>;
CutCost cost_of_cut(const Layers& layers, const std::vector<int>& stage_of_layers,
                    const std::vector<int>& rank_of_stage, const StageMemory& memory) {
  std::vector<double> stages(rank_of_stage.size(), 0), ranks(rank_of_stage.size(), 0), held(rank_of_stage.size(), 0);
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
    const auto rank = static_cast<size_t>(rank_of_stage[s]);
    ranks[rank] += stages[s];
    squares += stages[s] * stages[s];
    if (!memory.held) continue;
    const BlockInterval blocks = blocks_of_stage(stage_of_layers, static_cast<int>(s));
    held[rank] += memory.held(static_cast<int>(s), layers.blocks(blocks.begin, blocks.end));
  }
  const double most_held = *std::max_element(held.begin(), held.end());
  return {std::max(0.0, most_held - memory.budget), *std::max_element(ranks.begin(), ranks.end()),
          *std::max_element(stages.begin(), stages.end()), most_held, squares};
}

bool is_better(const CutCost& a, const CutCost& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] * kRounding < b[i]) return true;
    if (b[i] * kRounding < a[i]) return false;
  }
  return false;
}

// Moves one layer at a border to its neighbour, where that gains most, until no move gains.
void move_borders(const Layers& layers, const std::vector<int>& rank_of_stage, const StageMemory& memory,
                  std::vector<int>& stage) {
  CutCost best = cost_of_cut(layers, stage, rank_of_stage, memory);
  for (size_t moved = layers.flops.size(); moved != 0;) {
    moved = 0;
    int to = 0;
    for (size_t i = 1; i + 1 < layers.flops.size(); ++i) {
      for (const int neighbour : {stage[i - 1], stage[i + 1]}) {
        const bool at_a_border = stage[i - 1] != stage[i + 1], all_of_its_stage = stage[i - 1] + 2 == stage[i + 1];
        if (neighbour == stage[i] || !at_a_border || all_of_its_stage) continue;
        const int old_stage = std::exchange(stage[i], neighbour);
        const CutCost cost = cost_of_cut(layers, stage, rank_of_stage, memory);
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

std::vector<int> balanced(const Layers& layers, int stages, const StageMemory& memory) {
  if (stages < 1 || static_cast<size_t>(stages) > layers.flops.size()) {
    throw Error(Code::kBadConfig,
                "the stages of a pipeline, mesh.pp times those of a rank, must not exceed the blocks of the model: " +
                    std::to_string(stages) + " > " + std::to_string(layers.flops.size()) +
                    "\n  fix: a product of mesh.pp and strategy.stages_per_rank of at most " +
                    std::to_string(layers.flops.size()));
  }
  return Cuts(layers, static_cast<size_t>(stages), memory).best();
}

}  // namespace

double flops_of(const BlockShape& block) {
  double flops = 0;
  for (const PassCost* cost : {&block.forward, &block.backward}) flops += cost->matmul_flops + cost->attention_flops;
  return flops;
}

std::vector<int> layer_of_blocks(const ModelTable& model) {
  std::vector<int> out;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const int layer = model.blocks[b].layer;
    const bool is_new = b > 0 && (layer < 0 || layer != model.blocks[b - 1].layer);
    out.push_back(b == 0 ? 0 : out.back() + (is_new ? 1 : 0));
  }
  return out;
}

std::vector<int> stage_of_blocks(const ModelTable& model, int stages, const StageMemory& memory) {
  const Layers layers = layers_of(model);
  return spread_over_blocks(layers, balanced(layers, stages, memory));
}

std::vector<int> stage_of_blocks(const ModelTable& model, const std::vector<int>& rank_of_stage,
                                 const StageMemory& memory) {
  const bool one_stage_a_rank =
      std::set<int>(rank_of_stage.begin(), rank_of_stage.end()).size() == rank_of_stage.size();
  if (one_stage_a_rank) return stage_of_blocks(model, static_cast<int>(rank_of_stage.size()), memory);
  const Layers layers = layers_of(model);
  std::vector<int> stage = balanced(layers, static_cast<int>(rank_of_stage.size()), {});
  move_borders(layers, rank_of_stage, memory, stage);
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
