// The numbers of one step of AdamW (adamw_kernel.h), for the kernels of every device. Each is rounded to fp32 once, so
// that every element, instruction set and device sees the same ones.   Threads: pure.
#pragma once

#include <cmath>
#include <cstdint>

#include "herd/kernels/adamw_kernel.h"

namespace herd::kernels {

struct AdamWScalars {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;  // 1 and 0 once the second moment is frozen
  float keep;                    // 1 - rate * weight_decay
  float step_size;               // rate / (1 - beta1^t)
  float correction2;             // sqrt(1 - beta2^t2)
  float epsilon;
};

// REQUIRES hyper.t >= 1.
inline AdamWScalars adamw_scalars(const AdamWHyper& hyper) {
  const bool is_frozen = hyper.freeze_step > 0 && hyper.t > hyper.freeze_step;
  const auto t1 = static_cast<double>(hyper.t);
  const auto t2 = static_cast<double>(is_frozen ? hyper.freeze_step : hyper.t);
  const double beta2 = is_frozen ? 1 : hyper.beta2;
  return {.beta1 = static_cast<float>(hyper.beta1),
          .one_minus_beta1 = static_cast<float>(1 - hyper.beta1),
          .beta2 = static_cast<float>(beta2),
          .one_minus_beta2 = static_cast<float>(1 - beta2),
          .keep = static_cast<float>(1 - hyper.rate * hyper.weight_decay),
          .step_size = static_cast<float>(hyper.rate / (1 - std::pow(hyper.beta1, t1))),
          .correction2 = static_cast<float>(std::sqrt(1 - std::pow(hyper.beta2, t2))),
          .epsilon = static_cast<float>(hyper.epsilon)};
}

}  // namespace herd::kernels
