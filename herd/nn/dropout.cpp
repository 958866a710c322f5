#include "herd/nn/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/kernels/philox.h"
#include "herd/nn/philox.h"

namespace herd::nn {
namespace {

constexpr int64_t kCounters = 64;          // drawn at a time
constexpr int64_t kPiece = 4 * kCounters;  // elements

struct Draw {
  std::vector<uint64_t> keys;  // per row
  uint32_t layer, site;
  uint32_t threshold;  // dropped if word < threshold
};

void check_probability(double p) {
  if (p >= 0 && p < 1) return;
  throw Error(Code::kBadConfig, "dropout p = " + std::to_string(p) + ", but 0 <= p < 1\n  fix: model.dropout = 0.1");
}

Draw make_draw(int64_t rows, double p, Site site, const Context& context) {
  HERD_CHECK_EQ(static_cast<int64_t>(context.samples.size()), rows);
  Draw draw;
  for (int64_t sample : context.samples) {
    draw.keys.push_back(mix(mix(context.seed, static_cast<uint64_t>(context.step)), static_cast<uint64_t>(sample)));
  }
  draw.layer = static_cast<uint32_t>(context.layer);
  draw.site = static_cast<uint32_t>(site);
  draw.threshold = static_cast<uint32_t>(p * 4294967296.0);
  return draw;
}

// use(element of the whole tensor, words of a piece, elements in the piece)
template <typename Use>
void for_each_piece(const Draw& draw, int64_t row_elements, const Use& use) {
  const int64_t pieces = (row_elements + kPiece - 1) / kPiece, rows = static_cast<int64_t>(draw.keys.size());
  at::parallel_for(0, rows * pieces, 64, [&](int64_t begin, int64_t end) {
    uint32_t words[kPiece];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / pieces, piece = i % pieces, at = piece * kPiece;
      kernels::philox_words({philox_key(draw.keys[row]), draw.layer, draw.site},
                            static_cast<uint64_t>(piece) * kCounters, kCounters, words);
      use(row * row_elements + at, words, std::min(kPiece, row_elements - at));
    }
  });
}

// x * keep / (1 - p); the same for gradients.
at::Tensor apply_mask(const at::Tensor& x, const Draw& draw, double p) {
  const at::Tensor in = x.contiguous();
  if (in.scalar_type() != at::kFloat || !in.is_cpu()) {
    at::Tensor keep = at::empty(in.sizes(), at::kBool);
    bool* mask = keep.mutable_data_ptr<bool>();
    for_each_piece(draw, in.numel() / in.size(0), [&](int64_t at, const uint32_t* words, int64_t count) {
      for (int64_t i = 0; i < count; ++i) mask[at + i] = words[i] >= draw.threshold;
    });
    return in * keep.to(in.device()) * (1 / (1 - p));
  }
  at::Tensor out = at::empty_like(in);
  const float* from = in.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  const float scale = static_cast<float>(1 / (1 - p));
  for_each_piece(draw, in.numel() / in.size(0), [&](int64_t at, const uint32_t* words, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[at + i] = words[i] >= draw.threshold ? from[at + i] * scale : 0.0f;
  });
  return out;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Draw& draw,
                            double p) {
    std::vector<int64_t> keys(draw.keys.begin(), draw.keys.end());
    context->saved_data["keys"] = std::move(keys);
    context->saved_data["where"] = std::vector<int64_t>{draw.layer, draw.site, draw.threshold};
    context->saved_data["p"] = p;
    return apply_mask(x, draw, p);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const std::vector<int64_t> keys = context->saved_data["keys"].toIntVector();
    const std::vector<int64_t> where = context->saved_data["where"].toIntVector();
    const Draw draw{{keys.begin(), keys.end()},
                    static_cast<uint32_t>(where[0]),
                    static_cast<uint32_t>(where[1]),
                    static_cast<uint32_t>(where[2])};
    return {apply_mask(gradients[0], draw, context->saved_data["p"].toDouble()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, Site site, const Context& context) {
  check_probability(p);
  if (p == 0 || !context.training || x.numel() == 0) return x;
  return DropoutFunction::apply(x, make_draw(x.size(0), p, site, context), p);
}

}  // namespace herd::nn
