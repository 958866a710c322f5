#include "herd/strategies/gradient_codec.h"

#include <algorithm>

#include "herd/base/check.h"
#include "herd/program/program_names.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/frozen.h"

namespace herd::strategies {
namespace {

kernels::CodecKind kind_of(program::Codec form, bool quantiles) {
  using kernels::CodecKind;
  switch (form) {
    case program::Codec::kInt8:
      return quantiles ? CodecKind::kInt8Quantiles : CodecKind::kInt8;
    case program::Codec::kInt4:
      return quantiles ? CodecKind::kInt4Quantiles : CodecKind::kInt4;
    case program::Codec::kTopK:
      return CodecKind::kTopK;
    default:
      return CodecKind::kBf16;
  }
}

}  // namespace

bool GradientCodec::stays_exact(std::string_view parameter, size_t num_dims) const {
  return num_dims < 2 || spec::matches_any(exclude, parameter);
}

int64_t GradientCodec::exact_elements(const spec::ParameterGroupShape& group, int tp, int place) const {
  int64_t elements = 0;
  for (const spec::ParameterShape& parameter : group.parameters) {
    if (stays_exact(parameter.name, parameter.sizes.size())) elements += parameter.elements_of_rank(tp, place);
  }
  return elements;
}

GradientCodec gradient_codec(const spec::RunFile& run, const std::vector<spec::ParameterGroupShape>& groups) {
  const auto& strategy = run.strategy;
  if (strategy.compression == "none") return {};
  const auto form = program::parse_codec(strategy.compression);
  HERD_CHECK(form.has_value(), "a codec of strategy.compression: " + strategy.compression);
  const bool is_hosts = program::keeps_residuals(*form) || strategy.sync != "all_reduce";
  const bool beside_device = spec::kernels_of(run) == spec::Kernels::kDevice && is_hosts;
  spec::check_patterns("strategy.compression_exclude", groups, strategy.compression_exclude);
  return {.form = *form,
          .settings = {.kind = kind_of(*form, strategy.compression_levels == "quantiles"),
                       .ratio = strategy.compression_ratio},
          .exclude = strategy.compression_exclude,
          .warmup_steps = strategy.compression_warmup,
          .tier = beside_device ? program::Tier::kHost : program::Tier::kDevice};
}

}  // namespace herd::strategies
