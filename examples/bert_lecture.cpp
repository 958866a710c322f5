// Trains the BERT classifier of a lecture: token and position embeddings, two encoder layers of torch, and a classifier
// on the first token; 10,000 random sequences of 128 tokens, all with label 0, and a line for each epoch.
//   herd run -n 2 -- examples/bert_lecture bert_lecture.toml --epochs 3 --batch 32 --samples 10000
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>

#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/launch/environment.h"
#include "herd/train/train_chain.h"

namespace F = torch::nn::functional;
using herd::Tensors;

constexpr int64_t kVocabulary = 30522, kWidth = 256, kHeads = 4, kTokens = 128, kClasses = 2;

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
  std::map<std::string, int64_t> options = {{"--epochs", 3}, {"--batch", 32}, {"--samples", 10000}};
  std::vector<std::string> words;  // of train_chain()
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (!options.contains(word))
        words.push_back(word);
      else if (i + 1 == argc || (options[word] = std::stoll(argv[++i])) < 1)
        throw std::invalid_argument(word);
    }
  } catch (const std::exception&) {
    std::fprintf(stderr, "--epochs, --batch and --samples take a number of at least 1\n");
    return 2;
  }
  const int64_t batch = options["--batch"], samples = options["--samples"];
  const int64_t steps = (options["--epochs"] * samples + batch - 1) / batch;
  if (!words.empty())  // before other keys, which win
    words.insert(words.begin() + 1, {"train.batch=" + std::to_string(batch), "train.steps=" + std::to_string(steps)});
  std::vector<char*> arguments = {argv[0]};
  for (std::string& word : words) arguments.push_back(word.data());

  double loss_sum = 0;
  int64_t counted = 0;
  const auto print_epochs = [&](const herd::StepMetrics& step) {
    loss_sum += step.loss * static_cast<double>(step.tokens);
    counted += step.tokens;
    const int64_t epoch = step.step * step.tokens / samples;  // done
    if (epoch == (step.step - 1) * step.tokens / samples) return;
    std::printf("epoch %lld  loss %.4f\n", static_cast<long long>(epoch), loss_sum / static_cast<double>(counted));
    loss_sum = 0, counted = 0;
  };
  herd::train::TrainHooks hooks;
  try {
    if (herd::launch::read_environment().rank == 0) hooks.step_done = print_epochs;
  } catch (const herd::Error&) {  // train_chain() says what is wrong with it
  }
  return herd::train_chain(static_cast<int>(arguments.size()), arguments.data(), make_chain(),
                           {.read = read_sequences, .samples = samples}, hooks);
}
