#include "herd/train/run_codec.h"

#include <algorithm>
#include <utility>

namespace herd::train {

std::map<int, std::vector<kernels::ElementRange>> exact_elements(const strategies::GradientCodec& codec,
                                                                 const runtime::Groups& groups) {
  std::map<int, std::vector<kernels::ElementRange>> exact;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const nn::Parameter& parameter : std::as_const(*groups[g]).parameters()) {
      const auto& shape = parameter.spec();
      if (codec.stays_exact(shape.name, shape.sizes.size()))
        exact[static_cast<int>(g)].push_back({parameter.offset(), parameter.offset() + shape.elements()});
    }
  }
  return exact;
}

std::unique_ptr<runtime::EncodedGradients> encoded_gradients(const spec::RunFile& run, const spec::ModelTable& table,
                                                             const runtime::FlatParameters& parameters,
                                                             const program::Program& step,
                                                             const runtime::ServedParameters* served) {
  const strategies::GradientCodec codec = strategies::gradient_codec(run, table.groups);
  const bool is_used = std::any_of(step.values.begin(), step.values.end(),
                                   [](const auto& entry) { return entry.first.kind == program::ValueKind::kResidual; });
  if (!is_used) return nullptr;
  runtime::EncodedGradients::Options options{
      .codec = codec.settings, .exact = exact_elements(codec, parameters.groups()), .warmup_steps = codec.warmup_steps};
  return std::make_unique<runtime::EncodedGradients>(parameters, step, std::move(options), served);
}

}  // namespace herd::train
