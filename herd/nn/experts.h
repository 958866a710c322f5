// Sends each token through its experts, which are gated feed-forward layers.   x (.., D) -> y (.., D)
//   N tokens, E experts of width F, k experts of each token, P rows of a token and an expert: N*k, less dropped ones
//   y_n = sum_j w_nj down_e(silu(gate_e(x_n)) * up_e(x_n)),  e = experts_nj;  a token adds its k terms in fp32, in the
//   order of its choices, so the bits are the same in every run.
// Rows are sorted by expert, and by token within one. An expert multiplies its rows alone, kExpertRows of them at a
// time, so nothing is padded and scratch memory does not depend on the choices. An expert without rows does nothing;
// its gradient is zero.
//   Forward takes 6*P*D*F FLOP, backward twice that. The graph keeps x, P*F outputs of gate and of up, and 16 bytes of
//   each row.
// Gradients are written straight into the flat ones, as those of linear.h. Choices are on the host; x may be on a
// device. Threads: one at a time.
#pragma once

#include <string>

#include "herd/nn/parameter_group.h"
#include "herd/nn/router.h"

namespace herd::nn {

inline constexpr int64_t kExpertRows = 512;

struct ExpertParameters {
  Parameter& gate;  // (E, F, D)
  Parameter& up;    // (E, F, D)
  Parameter& down;  // (E, D, F)
};

// Returns the parameters prefix + experts.{gate, up, down} + .weight.
ExpertParameters find_experts(const GroupList& groups, const std::string& prefix);

at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertParameters& parameters);

}  // namespace herd::nn
