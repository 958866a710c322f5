// Trains two towers that meet: queries and items are embedded by branches of their own, and a late block reads both.
// A chain lists its blocks one after the other; what each reads makes the branches.
//   herd run -n 2 -- examples/two_towers two_towers.toml
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "herd/train/train_chain.h"

namespace F = torch::nn::functional;
using herd::Tensors;

constexpr int64_t kFeatures = 12, kWidth = 24;

torch::nn::Sequential tower() {
  return torch::nn::Sequential(torch::nn::Linear(kFeatures, kWidth), torch::nn::Tanh(),
                               torch::nn::Linear(kWidth, kWidth));
}

herd::Chain make_chain() {
  herd::Chain chain;
  const auto run_tower = [](torch::nn::SequentialImpl& tower, const Tensors& x) { return tower.forward(x[0]); };
  chain.add("query", {"queries"}, tower, run_tower)
      .add("item", {"items"}, tower, run_tower)
      .add(
          "score", {"query", "item"}, [] { return torch::nn::Linear(kWidth, 1); },
          [](torch::nn::LinearImpl& linear, const Tensors& x) { return linear.forward(x[0] * x[1]).squeeze(1); })
      .add_function("loss", {"score", "clicks"}, [](const Tensors& x) {
        const auto options = F::BinaryCrossEntropyWithLogitsFuncOptions().reduction(torch::kSum);
        return Tensors{F::binary_cross_entropy_with_logits(x[0], x[1], options), torch::tensor(x[0].size(0))};
      });
  return chain;
}

// A query and an item that point the same way are a click.
herd::Batch read_clicks(const std::vector<int64_t>& samples) {
  const auto n = static_cast<int64_t>(samples.size());
  at::Tensor queries = torch::empty({n, kFeatures}), items = torch::empty({n, kFeatures});
  for (int64_t row = 0; row < n; ++row) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(samples[static_cast<size_t>(row)]));
    queries[row] = torch::randn({kFeatures}, generator);
    items[row] = torch::randn({kFeatures}, generator);
  }
  const at::Tensor clicks = ((queries * items).sum(1) > 0).to(torch::kFloat);
  return {.tensors = {{"queries", queries}, {"items", items}, {"clicks", clicks}}};
}

int main(int argc, char** argv) {
  return herd::train_chain(argc, argv, make_chain(), {.read = read_clicks, .samples = 8192});
}
