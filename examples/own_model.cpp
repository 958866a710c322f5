// Trains a model of one's own, a small vision transformer of plain torch modules, on images that it makes: bright
// squares whose quadrant is the label. herd trains it in any layout, since its blocks are named:
//   herd run -n 4 -- examples/own_model own_model.toml mesh.pp=2
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>

#include "herd/train/train_chain.h"

namespace F = torch::nn::functional;
using herd::Tensors;

constexpr int64_t kSide = 16, kPatch = 4, kPatches = kSide / kPatch * (kSide / kPatch), kWidth = 32, kClasses = 4;

// Cuts an image [B, 16, 16] into patches, and makes a row of each: [B, 16, width].
struct PatchesImpl : torch::nn::Module {
  PatchesImpl() {
    linear = register_module("linear", torch::nn::Linear(kPatch * kPatch, kWidth));
    positions = register_parameter("positions", 0.02 * torch::randn({1, kPatches, kWidth}));
  }
  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor rows = images.unfold(1, kPatch, kPatch).unfold(2, kPatch, kPatch).flatten(3).flatten(1, 2);
    return linear->forward(rows) + positions;
  }
  torch::nn::Linear linear{nullptr};
  at::Tensor positions;
};
TORCH_MODULE(Patches);

struct HeadImpl : torch::nn::Module {
  HeadImpl() {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    linear = register_module("linear", torch::nn::Linear(kWidth, kClasses));
  }
  at::Tensor forward(const at::Tensor& x) { return linear->forward(norm->forward(x.mean(1))); }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Head);

torch::nn::TransformerEncoderLayer layer() {
  return torch::nn::TransformerEncoderLayer(
      torch::nn::TransformerEncoderLayerOptions(kWidth, 4).dim_feedforward(64).dropout(0.0));
}

herd::Chain make_chain() {
  herd::Chain chain;
  chain.add("patches", {"images"}, [] { return Patches(); });
  for (int i = 0; i < 4; ++i) {  // torch's layer takes [T, B, width]
    chain.add("layer" + std::to_string(i), {}, layer,
              [](torch::nn::TransformerEncoderLayerImpl& layer, const Tensors& x) {
                return layer.forward(x[0].transpose(0, 1)).transpose(0, 1);
              });
  }
  chain.add(
      "head", {"layer3", "labels"}, [] { return Head(); },
      [](HeadImpl& head, const Tensors& x) {
        const at::Tensor sum =
            F::cross_entropy(head.forward(x[0]), x[1], F::CrossEntropyFuncOptions().reduction(torch::kSum));
        return Tensors{sum, torch::tensor(x[1].size(0))};
      });
  return chain;
}

// Image i is noise with a bright square in quadrant i % 4.
herd::Batch read_images(const std::vector<int64_t>& samples) {
  const auto count = static_cast<int64_t>(samples.size());
  at::Tensor images = torch::empty({count, kSide, kSide}), labels = torch::empty({count}, torch::kLong);
  for (int64_t row = 0; row < count; ++row) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(samples[static_cast<size_t>(row)]));
    images[row] = 0.5 * torch::randn({kSide, kSide}, generator);
    const int64_t label = samples[static_cast<size_t>(row)] % kClasses;
    images[row].narrow(0, label / 2 * 8 + 2, 4).narrow(1, label % 2 * 8 + 2, 4) += 1.0;
    labels[row] = label;
  }
  return {.tensors = {{"images", images}, {"labels", labels}}};
}

int main(int argc, char** argv) {
  return herd::train_chain(argc, argv, make_chain(), {.read = read_images, .samples = 4096});
}
