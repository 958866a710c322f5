#include "herd/train/nonfinite.h"

#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "herd/nn/run_block.h"

namespace herd::train {
namespace {

bool finite(const nn::Tuple& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& t) {
    return !t.defined() || !t.is_floating_point() || at::isfinite(t).all().item<bool>();
  });
}

class Search {
 public:
  Search(const runtime::Chain& chain, uint64_t seed, int64_t step, double weight) : chain_(chain) {
    context_.training = true;
    context_.seed = seed;
    context_.step = step;
    context_.weight = weight;
  }

  // Where the first one appears in this micro-batch; empty if nowhere.
  std::string run(const runtime::Batch& batch) {
    context_.samples = batch.samples;
    const int last = static_cast<int>(chain_.size()) - 1;
    nn::Tuple x = {batch.inputs_BT};
    std::vector<nn::Graph> graphs;
    for (int b = 0; b < last; ++b) {
      if (!weights_finite(b)) return "weights of " + chain_[b]->name();
      graphs.push_back(nn::run_forward(*chain_[b], x, at(b)));
      x = nn::detached(graphs.back().outputs);
      if (!finite(x)) return "output of " + chain_[b]->name();
    }
    if (!weights_finite(last)) return "weights of " + chain_[last]->name();
    begin(last);
    auto result = dynamic_cast<nn::LossBlock&>(*chain_[last]).loss(x, batch.targets_BT, at(last), true);
    if (!std::isfinite(result.sum)) return "loss of " + chain_[last]->name();
    if (!finite(result.dx) || !gradients_finite(last)) return "gradient of " + chain_[last]->name();
    nn::Tuple dx = std::move(result.dx);
    for (int b = last - 1; b >= 0; --b) {
      begin(b);
      dx = nn::run_backward(std::move(graphs[b]), dx);
      if (!finite(dx) || !gradients_finite(b)) return "gradient of " + chain_[b]->name();
    }
    return "";
  }

 private:
  const nn::Context& at(int block) {
    context_.layer = block;
    return context_;
  }
  void begin(int block) {
    for (const auto& group : chain_[block]->groups()) group->begin_gradient();
  }
  bool weights_finite(int block) const {
    for (const auto& group : chain_[block]->groups())
      if (!finite({group->weights()})) return false;
    return true;
  }
  bool gradients_finite(int block) const {
    for (const auto& group : chain_[block]->groups())
      if (!group->frozen() && !finite({group->gradient()})) return false;
    return true;
  }

  const runtime::Chain& chain_;
  nn::Context context_;
};

}  // namespace

std::string find_nonfinite(const runtime::Chain& chain, const runtime::StepInput& input, uint64_t seed, int64_t step) {
  for (size_t m = 0; m < input.micro_batches.size(); ++m) {
    Search search(chain, seed, step, input.weight);
    std::string where = search.run(input.micro_batches[m]);
    if (!where.empty()) return where + ", micro-batch " + std::to_string(m);
  }
  return "";
}

std::string find_nonfinite_shard(const runtime::FlatParameters& parameters) {
  for (int g = 0; g < parameters.num_groups(); ++g) {
    if (!finite({parameters.own_weights(g)})) return "weights of " + parameters.group(g).name();
  }
  for (int g = 0; g < parameters.num_groups(); ++g) {
    if (!parameters.group(g).frozen() && !finite({parameters.own_gradient(g)}))
      return "gradient of " + parameters.group(g).name();
  }
  return "";
}

std::string gather_findings(const std::string& mine, Communicator& comm) {
  constexpr size_t kBytes = 256;
  std::vector<uint8_t> line(kBytes, 0), all(kBytes * comm.size());
  std::memcpy(line.data(), mine.data(), std::min(mine.size(), kBytes - 1));
  comm.all_gather(line, all, {.name = "where the NaN came from"});
  std::string text;
  for (int r = 0; r < comm.size(); ++r) {
    const char* found = reinterpret_cast<const char*>(all.data() + r * kBytes);
    if (*found) text += (text.empty() ? "rank " : "; rank ") + std::to_string(r) + ": " + found;
  }
  return text;
}

}  // namespace herd::train
