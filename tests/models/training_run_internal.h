// Trains a model in memory, block by block as the runtime would: flat weights, flat gradients, micro-batches, clipping
// by the global norm, herd's own AdamW. For tests.
#pragma once

#include <cmath>

#include "herd/kernels/adamw_kernel.h"
#include "herd/kernels/sum_of_squares.h"
#include "herd/models/model.h"
#include "herd/nn/run_block.h"

namespace herd::models {

class TrainingRun {
 public:
  explicit TrainingRun(Model model, uint64_t seed = 1) : model_(std::move(model)) {
    for (const auto& group : model_.groups) {
      const auto dtype = group->dtype();
      flats_.push_back({at::empty({group->elements()}, dtype),
                        at::full({group->elements()}, std::nanf(""), group->gradient_dtype()),
                        at::zeros({group->elements()}), at::zeros({group->elements()})});
      group->initialize(seed, flats_.back().weights);
      group->attach(flats_.back().weights);
      group->attach_gradient(flats_.back().gradient);
    }
  }

  // Mean loss of the batch, its gradient in the groups. inputs, targets int64 (B, T), cut into pieces of rows.
  double gradient(const at::Tensor& inputs, const at::Tensor& targets, int64_t micro_batches,
                  nn::Context context = {}) {
    for (const auto& group : model_.groups) group->begin_gradient();
    context.loss_weight = 1.0 / static_cast<double>(targets.numel());
    const std::vector<int64_t> samples = context.samples;
    double sum = 0;
    for (int64_t m = 0; m < micro_batches; ++m) {
      const int64_t begin = inputs.size(0) * m / micro_batches, end = inputs.size(0) * (m + 1) / micro_batches;
      if (!samples.empty()) context.samples.assign(samples.begin() + begin, samples.begin() + end);
      sum += micro_batch(inputs.slice(0, begin, end), targets.slice(0, begin, end), context);
    }
    return sum / static_cast<double>(targets.numel());
  }

  void step(double clip) {  // 0 = no clipping. REQUIRES fp32
    const float factor = clip > 0 ? clip_factor(clip) : 1.0f;
    kernels::AdamWHyper hyper{.rate = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .t = ++steps_};
    for (size_t g = 0; g < flats_.size(); ++g) {
      std::vector<kernels::ElementRange> decay;
      for (const nn::Parameter& parameter : model_.groups[g]->parameters()) {
        if (parameter.spec().decay)
          decay.push_back({parameter.offset(), parameter.offset() + parameter.spec().elements()});
      }
      const Flat& flat = flats_[g];
      kernels::adamw(
          {flat.weights.mutable_data_ptr<float>(), flat.gradient.const_data_ptr<float>(),
           flat.moment1.mutable_data_ptr<float>(), flat.moment2.mutable_data_ptr<float>(), flat.weights.numel(), 0},
          hyper, decay, &factor);
    }
  }

  const Model& model() const { return model_; }
  at::Tensor weights() const {
    return all([](const Flat& flat) { return flat.weights; });
  }
  at::Tensor gradients() const {
    return all([](const Flat& flat) { return flat.gradient; });
  }

 private:
  struct Flat {
    at::Tensor weights, gradient, moment1, moment2;
  };

  float clip_factor(double clip) const {
    double squares = 0;
    for (const Flat& flat : flats_) {
      squares += kernels::sum_of_squares(flat.gradient.const_data_ptr<float>(), flat.gradient.numel());
    }
    return static_cast<float>(std::min(1.0, clip / (std::sqrt(squares) + 1e-6)));
  }

  double micro_batch(const at::Tensor& inputs, const at::Tensor& targets, nn::Context context) {
    std::vector<nn::Graph> graphs;
    nn::Tuple x = {inputs};
    for (size_t b = 0; b + 1 < model_.blocks.size(); ++b) {
      context.layer = static_cast<int>(b);
      graphs.push_back(nn::run_forward(*model_.blocks[b], x, context));
      x = nn::detached(graphs.back().outputs);
    }
    nn::LossResult loss = model_.loss_block().loss(x, targets, context, true);
    nn::Tuple dx = std::move(loss.dx);
    for (; !graphs.empty(); graphs.pop_back()) dx = nn::run_backward(std::move(graphs.back()), dx);
    return loss.sum;
  }

  template <typename Pick>
  at::Tensor all(const Pick& pick) const {
    std::vector<at::Tensor> parts;
    for (const Flat& flat : flats_) parts.push_back(pick(flat));
    return at::cat(parts);
  }

  Model model_;
  std::vector<Flat> flats_;
  int64_t steps_ = 0;
};

}  // namespace herd::models
