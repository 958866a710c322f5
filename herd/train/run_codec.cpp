#include "herd/train/run_codec.h"

#include <algorithm>

#include "herd/strategies/gradient_codec.h"

namespace herd::train {

std::unique_ptr<runtime::EncodedGradients> encoded_gradients(const spec::RunFile& run, const spec::ModelTable& table,
                                                             const runtime::FlatParameters& parameters,
                                                             const program::Program& step) {
  const strategies::GradientCodec codec = strategies::gradient_codec(run, table.groups);
  const bool is_used = std::any_of(step.values.begin(), step.values.end(),
                                   [](const auto& entry) { return entry.first.kind == program::ValueKind::kResidual; });
  if (!is_used) return nullptr;
  runtime::EncodedGradients::Options options{.codec = codec.settings, .exact = {}, .warmup_steps = codec.warmup_steps};
  for (int g = 0; g < parameters.num_groups(); ++g) {
    for (const nn::Parameter& parameter : parameters.group(g).parameters()) {
      const auto& shape = parameter.spec();
      if (codec.stays_exact(shape.name, shape.sizes.size()))
        options.exact[g].push_back({parameter.offset(), parameter.offset() + shape.elements()});
    }
  }
  return std::make_unique<runtime::EncodedGradients>(parameters, step, std::move(options));
}

}  // namespace herd::train
