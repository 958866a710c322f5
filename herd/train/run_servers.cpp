#include "herd/train/run_servers.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "herd/strategies/gradient_codec.h"
#include "herd/strategies/server_sync.h"
#include "herd/train/run_codec.h"
#include "herd/train/run_optimizer.h"

namespace herd::train {

namespace {

// Where each push is an update, n ranks take n of them in a step, each with its part of the step's gradient. SGD's add
// up to one update, but for weight decay. AdamW's length does not depend on the gradient's, so that each is 1/n of one,
// and the updates of n ranks come to freeze_step steps.
void share_step(int ranks, runtime::ServedOptions& options) {
  if (auto* sgd = std::get_if<kernels::SgdHyper>(&options.optimizer)) {
    sgd->weight_decay /= ranks;
  } else {
    options.rate_factor = 1.0 / ranks;
    std::get<kernels::AdamWHyper>(options.optimizer).freeze_step *= ranks;
  }
}

}  // namespace

std::vector<at::ScalarType> own_state_types(const spec::RunFile& run, const spec::Layout& layout) {
  if (strategies::uses_servers(run, layout)) return {};
  return state_types(run.optimizer);
}

runtime::ServedOptions served_options(const spec::RunFile& run, const spec::ModelTable& table,
                                      const spec::Layout& layout, const runtime::Groups& groups,
                                      const optim::LearningRate& rate) {
  runtime::ServedOptions options{.optimizer = {}, .rate = rate, .check_finite = run.health.check_finite};
  options.num_servers = strategies::num_servers(run, layout);
  options.num_moments = make_optimizer(run.optimizer)->num_states();
  options.deadline = std::chrono::milliseconds(std::max<int64_t>(1, std::llround(run.comm.deadline_s * 1e3)));
  options.staleness = strategies::staleness(run, layout);
  if (const auto codec = strategies::gradient_codec(run, table.groups); codec.form != program::Codec::kPlain) {
    options.codec = codec.settings;
    if (codec.keeps_residuals()) options.exact = exact_elements(codec, groups);
  }
  const spec::RunFile::Optimizer& o = run.optimizer;
  if (o.kind == "sgd") {
    options.optimizer = kernels::SgdHyper{.momentum = o.momentum, .weight_decay = o.weight_decay};
  } else {
    options.optimizer = kernels::AdamWHyper{.beta1 = o.betas[0],
                                            .beta2 = o.betas[1],
                                            .epsilon = o.eps,
                                            .weight_decay = o.weight_decay,
                                            .freeze_step = o.freeze_step};
  }
  if (options.staleness != 0) share_step(layout.data_ranks(), options);
  return options;
}

std::unique_ptr<runtime::ServedParameters> served_parameters(const spec::RunFile& run, const spec::ModelTable& table,
                                                             const spec::Layout& layout,
                                                             const runtime::FlatParameters& parameters,
                                                             const program::Program& step,
                                                             const optim::LearningRate& rate) {
  if (!strategies::uses_servers(run, layout)) return nullptr;
  return std::make_unique<runtime::ServedParameters>(parameters, step,
                                                     served_options(run, table, layout, parameters.groups(), rate));
}

}  // namespace herd::train
