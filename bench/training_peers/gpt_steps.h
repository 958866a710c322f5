// Steps of the GPT in plain libtorch, updated by herd's fused AdamW whoever adds the gradients.
#pragma once

#include <torch/nn/functional/loss.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "bench/training_peers/gpt.h"
#include "herd/optim/adamw.h"

namespace bench {

// Prints milliseconds and loss, one step a line, where `prints`. `together` meets the other ranks before a step.
inline void run_steps(Gpt& gpt, const GptShape& shape, int64_t steps, bool prints,
                      const std::function<void()>& together,
                      const std::function<at::Tensor(const at::Tensor&)>& forward) {
  const herd::optim::AdamW optimizer({});
  const auto parameters = gpt.parameters();
  std::vector<std::vector<at::Tensor>> states;
  for (const auto& p : parameters) states.push_back({torch::zeros({p.numel()}), torch::zeros({p.numel()})});
  const at::Tensor tokens =
      (torch::arange(shape.batch * (shape.context + 1)) * 7919).remainder(shape.vocab).view({shape.batch, -1});
  const at::Tensor inputs = tokens.narrow(1, 0, shape.context), targets = tokens.narrow(1, 1, shape.context).flatten();
  for (int64_t step = 0; step < steps; ++step) {
    together();
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor logits = forward(inputs);
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
    gpt.zero_grad();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (!prints) continue;
    std::printf("ms %.2f loss %.5f\n", took.count(), loss.item<double>());
    std::fflush(stdout);
  }
}

}  // namespace bench
