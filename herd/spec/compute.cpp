#include "herd/spec/compute.h"

#include <cmath>

namespace herd::spec {

int64_t active_parameters(const ModelTable& model) {
  double sum = 0;
  for (const ParameterGroupShape& group : model.groups)
    for (const ParameterShape& parameter : group.parameters)
      sum += parameter.used * static_cast<double>(parameter.elements());
  return std::llround(sum);
}

double decoder_parameters(double vocab, double width, double layers) {
  return decoder_parameters(vocab, width, layers, 1, width, 4 * width);
}

double decoder_parameters(double vocab, double width, double layers, double heads, double head_width, double ffn) {
  return vocab * width + layers * (4 * heads * head_width * width + 2 * ffn * width + 5 * width);
}

namespace {

// Every pass over a layer's weight matrices takes 24*h^2 FLOP a token, and one over its attention scores 4*s*h.
// Three passes over the output layer take 2*h*V each.
double step_flops(const StepShape& x, double matrix_passes, double score_passes) {
  const double tokens = x.batch * x.context;
  return tokens *
         (x.layers * x.width * (24 * matrix_passes * x.width + 4 * score_passes * x.context) + 6 * x.width * x.vocab);
}

}  // namespace

double model_step_flops(const StepShape& step) { return step_flops(step, 3, 3); }
double selective_recompute_step_flops(const StepShape& step) { return step_flops(step, 3, 6); }
double full_recompute_step_flops(const StepShape& step) { return step_flops(step, 4, 4); }

double training_flops(double parameters, double tokens) { return 6 * parameters * tokens; }

double devices_needed(double parameters, double tokens, double flops_per_second, double seconds) {
  return training_flops(parameters, tokens) / (flops_per_second * seconds);
}

}  // namespace herd::spec
