// Attention of whole sequences as ranks compute it that share their tokens, put together again.
#pragma once

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "herd/comm/inproc_world.h"
#include "herd/nn/ring_attention.h"
#include "test_tensors_internal.h"

namespace herd::nn {

inline constexpr int64_t kBatch = 2, kWidth = 4;  // of sequences, and of a head

struct Attended {
  at::Tensor y, dx;
};

// Returns y (B, S, H d) and dx (B, S, W) of one rank, from its tokens of x (B, T, W) and dy (B, T, H d).
using OfRank = std::function<Attended(const at::Tensor& x_BSW, const at::Tensor& dy_BSA, const Context& context)>;

// Returns what `ranks` ranks compute together, whose tokens lie in a zigzag or in a range each.
inline Attended on_ranks(const at::Tensor& x, const at::Tensor& dy, int ranks, bool zigzag,
                         const std::vector<int64_t>& documents, const OfRank& of_rank) {
  Attended out{at::zeros_like(dy), at::zeros_like(x)};
  std::mutex mutex;
  run_inproc(ranks, [&](Communicator& comm) {
    const Context context{.training = true,
                          .seed = 3,
                          .step = 1,
                          .samples = {5, 8},
                          .layer = 2,
                          .document_begins = documents,
                          .cut = {.tokens = x.size(1), .place = comm.rank(), .parts = ranks, .zigzag = zigzag},
                          .tensor_ranks = &comm};
    // Calls copy(whole, own, count) for this rank's ranges of tokens, without padding.
    const auto for_each_range = [&](const at::Tensor& whole, const at::Tensor& own, const auto& copy) {
      int64_t at = 0;
      for (const auto& [begin, count] : context.cut.spans()) {
        const int64_t there = std::clamp<int64_t>(x.size(1) - begin, 0, count);
        if (there > 0) copy(whole.narrow(1, begin, there), own.narrow(1, at, there));
        at += count;
      }
    };
    const auto own = [&](const at::Tensor& whole) {
      const at::Tensor part = at::zeros({kBatch, context.cut.size(), whole.size(2)}, whole.options());
      for_each_range(whole, part, [](const at::Tensor& from, const at::Tensor& to) { to.copy_(from); });
      return part;
    };
    const Attended attended = of_rank(own(x), own(dy), context);
    const std::lock_guard lock(mutex);
    for (const auto& [whole, part] : {std::pair(out.y, attended.y), std::pair(out.dx, attended.dx)})
      for_each_range(whole, part, [](const at::Tensor& to, const at::Tensor& from) { to.copy_(from); });
  });
  return out;
}

inline Attended in_a_ring(const at::Tensor& x, const at::Tensor& dy, const AttentionShape& shape, int ranks,
                          const std::vector<int64_t>& documents = {}) {
  return on_ranks(x, dy, ranks, /*zigzag=*/true, documents,
                  [&](const at::Tensor& own_x, const at::Tensor& own_dy, const Context& context) -> Attended {
                    const at::Tensor leaf = own_x.detach().clone().requires_grad_();
                    at::AutoGradMode with_grad(true);
                    const at::Tensor y = ring_attention(leaf, shape, context);
                    return {y.detach(), torch::autograd::grad({y}, {leaf}, {own_dy})[0]};
                  });
}

inline double apart(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Returns where documents of two packed sequences of T tokens begin: of 1, 2, 3, .. tokens in the first; one in the
// second, and one more of the last token.
inline std::vector<int64_t> packed(int64_t T) {
  std::vector<int64_t> begins;
  for (int64_t begin = 0, length = 1; begin < T; begin += length++) begins.push_back(begin);
  begins.push_back(T);
  if (T > 1) begins.push_back(2 * T - 1);
  return begins;
}

}  // namespace herd::nn
