// A BERT-like classifier trained by ring all-reduce:   herd run -n 2 -- bert_ring
// It learns which sentences are in order (label 1) and which have two neighbouring words swapped (label 0).
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/adamw.h>

#include <cstdio>
#include <random>

#include "herd/ddp/distributed_data_parallel.h"

constexpr int64_t kWords = 9, kWidth = 32;  // words of a sentence, one of three in each place
const char* const kPattern[kWords][3] = {
    {"the", "this", "every"}, {"king", "prophet", "shepherd"}, {"saw", "blessed", "called"},
    {"a", "his", "that"},     {"city", "river", "lamb"},       {"and", "then", "but"},
    {"she", "he", "it"},      {"slept", "sang", "wept"},       {"quietly", "again", "there"}};

std::pair<at::Tensor, at::Tensor> make_sentences(int64_t count, std::mt19937& random) {
  at::Tensor tokens = torch::empty({count, kWords}, torch::kLong), labels = torch::empty({count}, torch::kLong);
  for (int64_t i = 0; i < count; ++i) {
    int64_t* words = tokens[i].data_ptr<int64_t>();
    for (int64_t w = 0; w < kWords; ++w) words[w] = 3 * w + random() % 3;
    labels[i] = static_cast<int64_t>(random() % 2);
    const int64_t at = random() % (kWords - 1);
    if (labels[i].item<int64_t>() == 0) std::swap(words[at], words[at + 1]);
  }
  return {tokens, labels};
}

struct Bert : torch::nn::Module {
  at::Tensor forward(const at::Tensor& tokens_BT) {
    const at::Tensor x_BTD = words(tokens_BT) + positions(torch::arange(kWords));
    return head(encoder(x_BTD.transpose(0, 1)).mean(0));
  }
  torch::nn::Embedding words = register_module("words", torch::nn::Embedding(3 * kWords, kWidth));
  torch::nn::Embedding positions = register_module("positions", torch::nn::Embedding(kWords, kWidth));
  torch::nn::TransformerEncoder encoder = register_module(
      "encoder", torch::nn::TransformerEncoder(
                     torch::nn::TransformerEncoderLayer(
                         torch::nn::TransformerEncoderLayerOptions(kWidth, 4).dim_feedforward(64).dropout(0)),
                     2));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kWidth, 2));
};

int main() {
  auto comm = herd::Communicator::create();
  auto net = std::make_shared<Bert>();
  herd::DataParallelOptions options;
  options.algorithm = "ring";
  herd::DistributedDataParallel<Bert> ddp(net, comm, options);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-3));
  std::mt19937 random(100 + comm.rank());
  for (int step = 0; step <= 150; ++step) {
    const auto [tokens, labels] = make_sentences(32, random);
    const at::Tensor loss = torch::nn::functional::cross_entropy(ddp(tokens), labels);
    loss.backward(), optimizer.step(), optimizer.zero_grad();
    if (step % 50 == 0 && comm.rank() == 0) std::printf("step %d loss %.3f\n", step, loss.item<double>());
  }
  const auto [tokens, labels] = make_sentences(512, random);
  const double right = (net->forward(tokens).argmax(1) == labels).to(torch::kDouble).mean().item<double>();
  std::printf("rank %d: accuracy %.3f on new sentences, words such as \"%s\"\n", comm.rank(), right, kPattern[1][0]);
}
