// Says in which codec a run sums gradients between data ranks: what strategy.compression and the keys beside it ask
// for.   Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "herd/kernels/codec.h"
#include "herd/program/program.h"
#include "herd/spec/parameter_group_shape.h"
#include "herd/spec/run_file.h"

namespace herd::strategies {

struct GradientCodec {
  program::Codec form = program::Codec::kPlain;  // kPlain where gradients are summed as they are
  kernels::CodecSettings settings = {};
  std::string exclude = "none";  // patterns of parameters
  int64_t warmup_steps = 0;      // first steps in which gradients are summed as they are
  // Where they are encoded: on the host beside a device, if the codec keeps what it loses or they are pushed.
  program::Tier tier = program::Tier::kDevice;

  // Tells whether the codec keeps what it loses for the next step. bf16, which loses little, does not.
  bool keeps_residuals() const { return program::keeps_residuals(form); }
  // Tells whether a parameter's gradient is summed in fp32 beside what is encoded: a vector's, or an excluded one's.
  bool stays_exact(std::string_view parameter, size_t num_dims) const;
  // Counts the elements of the group that stay exact, on the rank at `place` of `tp` tensor-parallel ranks.
  int64_t exact_elements(const spec::ParameterGroupShape& group, int tp, int place) const;
};

// Throws kBadConfig for a pattern of strategy.compression_exclude that matches none of `groups`.
GradientCodec gradient_codec(const spec::RunFile& run, const std::vector<spec::ParameterGroupShape>& groups);

}  // namespace herd::strategies
