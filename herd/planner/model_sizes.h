// Sets the sizes of well-known models as lectures count them beside herd's own: parameters, and the bytes of their
// weights, gradients and moments in fp32. Threads: pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "herd/spec/model_states.h"

namespace herd::planner {

// A model of Rajbhandari et al. 2020, arXiv:1910.02054, section 1, or of Brown et al. 2020, and herd's run file for it.
struct PublishedSize {
  std::string_view name;    // "BERT-Large"
  std::string_view preset;  // "bert-large", of herd plan --models
  double parameters = 0;    // as it is rounded there
  double bytes() const { return parameters * spec::kFp32Adam.total(); }
};
std::span<const PublishedSize> published_sizes();

// Writes a table; `exact` has the parameters of each preset, in the order of published_sizes().
std::string model_sizes_text(std::span<const int64_t> exact);

}  // namespace herd::planner
