#include "herd/train/run_optimizer.h"

#include "herd/optim/adamw.h"
#include "herd/optim/sgd.h"

namespace herd::train {

std::unique_ptr<optim::Optimizer> make_optimizer(const spec::RunFile::Optimizer& o) {
  if (o.kind == "sgd")
    return std::make_unique<optim::Sgd>(optim::SgdOptions{.momentum = o.momentum, .weight_decay = o.weight_decay});
  return std::make_unique<optim::AdamW>(optim::AdamWOptions{.beta1 = o.betas[0],
                                                            .beta2 = o.betas[1],
                                                            .epsilon = o.eps,
                                                            .weight_decay = o.weight_decay,
                                                            .freeze_step = o.freeze_step});
}

std::vector<at::ScalarType> state_types(const spec::RunFile::Optimizer& asked) {
  std::vector<at::ScalarType> types(static_cast<size_t>(make_optimizer(asked)->num_states()), at::kFloat);
  if (!types.empty() && asked.momentum_precision == "bf16") types[0] = at::kBFloat16;  // the first is the momentum
  return types;
}

optim::LearningRate learning_rate(const spec::RunFile& run) {
  return {.peak = run.optimizer.lr,
          .min = run.optimizer.lr_min,
          .warmup_steps = run.optimizer.warmup_steps,
          .total_steps = run.train.steps,
          .schedule = optim::parse_rate_schedule(run.optimizer.schedule)};
}

}  // namespace herd::train
