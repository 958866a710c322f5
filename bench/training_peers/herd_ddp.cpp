// Steps of a GPT in plain libtorch, alone or under herd::DistributedDataParallel; started by compare.py.
//   herd_ddp alone|herd LAYERS WIDTH VOCAB CONTEXT BATCH STEPS
// The update is herd's fused AdamW either way. Rank 0 prints milliseconds and loss, one step a line.
#include <torch/nn/functional/loss.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "bench/training_peers/gpt.h"
#include "herd/optim/adamw.h"
#include "herd/train/distributed_data_parallel.h"

int main(int argc, char** argv) {
  if (argc != 8) return std::fprintf(stderr, "herd_ddp alone|herd LAYERS WIDTH VOCAB CONTEXT BATCH STEPS\n"), 2;
  const bool together = std::string(argv[1]) == "herd";
  const bench::GptShape shape{std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]),
                              std::atoi(argv[6])};
  at::set_num_threads(1);
  torch::manual_seed(1);
  std::optional<herd::Communicator> comm;
  if (together) comm = herd::Communicator::create();
  auto gpt = std::make_shared<bench::Gpt>(shape);
  std::optional<herd::DistributedDataParallel<bench::Gpt>> ddp;
  if (together) ddp.emplace(gpt, *comm);

  const herd::optim::AdamW optimizer({});
  const auto parameters = gpt->parameters();
  std::vector<std::vector<at::Tensor>> states;
  for (const auto& p : parameters) states.push_back({torch::zeros({p.numel()}), torch::zeros({p.numel()})});
  const at::Tensor tokens =
      (torch::arange(shape.batch * (shape.context + 1)) * 7919).remainder(shape.vocab).view({shape.batch, -1});
  const at::Tensor inputs = tokens.narrow(1, 0, shape.context), targets = tokens.narrow(1, 1, shape.context).flatten();
  for (int64_t step = 0; step < std::atoi(argv[7]); ++step) {
    if (together) comm->barrier();
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor logits = ddp ? (*ddp)(inputs) : gpt->forward(inputs);
    const at::Tensor loss = torch::nn::functional::cross_entropy(logits.view({-1, shape.vocab}), targets);
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (size_t k = 0; k < parameters.size(); ++k) {
      const herd::kernels::ElementRange all{0, parameters[k].dim() == 2 ? parameters[k].numel() : 0};
      optimizer.step({.weights = parameters[k].detach().view({-1}),
                      .gradient = parameters[k].grad().view({-1}),
                      .states = states[k],
                      .offset = 0,
                      .decay = {&all, 1}},
                     {.step = step, .rate = 1e-3, .factor = nullptr});
    }
    gpt->zero_grad();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (!comm || comm->rank() == 0) {
      std::printf("ms %.2f loss %.5f\n", took.count(), loss.item<double>());
      std::fflush(stdout);
    }
  }
}
