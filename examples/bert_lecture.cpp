// Trains the BERT classifier of a lecture: token and position embeddings, two encoder layers of torch, and a classifier
// on the first token; 10,000 random sequences of 128 tokens, all with label 0, and a line for each epoch.
//   herd run -n 2 -- examples/bert_lecture bert_lecture.toml train.batch=32 train.steps=939
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>

#include <cstdio>

#include "herd/train/train_chain.h"

namespace F = torch::nn::functional;
using herd::Tensors;

constexpr int64_t kVocabulary = 30522, kWidth = 256, kHeads = 4, kTokens = 128, kSamples = 10000, kClasses = 2;

struct WordsImpl : torch::nn::Module {
  WordsImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(kVocabulary, kWidth));
    positions = register_parameter("positions", torch::zeros({1, kTokens, kWidth}));
  }
  at::Tensor forward(const at::Tensor& ids) { return embedding->forward(ids) + positions; }
  torch::nn::Embedding embedding{nullptr};
  at::Tensor positions;
};
TORCH_MODULE(Words);

torch::nn::TransformerEncoderLayer encoder_layer() {
  return torch::nn::TransformerEncoderLayer(torch::nn::TransformerEncoderLayerOptions(kWidth, kHeads).dropout(0.0));
}

herd::Chain make_chain() {
  herd::Chain chain;
  chain.add("words", {"ids"}, [] { return Words(); });
  const auto run_layer = [](torch::nn::TransformerEncoderLayerImpl& layer, const Tensors& x) {
    const at::Tensor ignored = x[1] == 0;  // torch's layer takes [T, B, width], and true where it ignores a token
    return layer.forward(x[0].transpose(0, 1), {}, ignored).transpose(0, 1);
  };
  chain.add("layer0", {"words", "mask"}, encoder_layer, run_layer);
  chain.add("layer1", {"layer0", "mask"}, encoder_layer, run_layer);
  chain.add(
      "classifier", {"layer1", "labels"}, [] { return torch::nn::Linear(kWidth, kClasses); },
      [](torch::nn::LinearImpl& linear, const Tensors& x) {
        const at::Tensor logits = linear.forward(x[0].select(1, 0));
        const auto options = F::CrossEntropyFuncOptions().reduction(torch::kSum);
        return Tensors{F::cross_entropy(logits, x[1], options), torch::tensor(x[1].size(0))};
      });
  return chain;
}

herd::Batch read_sequences(const std::vector<int64_t>& samples) {
  const auto n = static_cast<int64_t>(samples.size());
  at::Tensor ids = torch::empty({n, kTokens}, torch::kLong);
  for (int64_t row = 0; row < n; ++row) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(samples[static_cast<size_t>(row)]));
    ids[row] = torch::randint(kVocabulary, {kTokens}, generator, torch::kLong);
  }
  return {.tensors = {{"ids", ids},
                      {"mask", torch::ones({n, kTokens}, torch::kLong)},
                      {"labels", torch::zeros({n}, torch::kLong)}}};
}

int main(int argc, char** argv) {
  double loss_sum = 0;
  int64_t seen = 0, epoch = 0;
  const auto print_epochs = [&](const herd::StepMetrics& step) {
    loss_sum += step.loss * static_cast<double>(step.tokens);
    seen += step.tokens;
    if (seen < kSamples) return;
    std::printf("epoch %lld  loss %.4f\n", static_cast<long long>(++epoch), loss_sum / static_cast<double>(seen));
    loss_sum = 0, seen = 0;
  };
  return herd::train_chain(argc, argv, make_chain(), {.read = read_sequences, .samples = kSamples},
                           {.step_done = print_epochs});
}
