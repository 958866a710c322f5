#include "herd/nn/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/kernels/philox_stream.h"
#include "herd/nn/philox.h"

namespace herd::nn {
namespace {

constexpr int64_t kCounters = 64;          // counters whose random words are drawn at a time
constexpr int64_t kPiece = 4 * kCounters;  // elements; a counter gives one word to each of four

// Holds elements [first, first + count) of a sample, which lie in the tensor from element `at` on.
struct SampleRange {
  uint64_t key;
  int64_t first, at, count;
};
// Says which random words decide which elements of a tensor are dropped.
struct Draw {
  std::vector<SampleRange> ranges;
  uint32_t layer, site;
  uint32_t threshold;  // dropped if word < threshold
};

void check_probability(double p) {
  if (p >= 0 && p < 1) return;
  throw Error(Code::kBadConfig, "dropout p = " + std::to_string(p) + ", but 0 <= p < 1\n  fix: model.dropout = 0.1");
}

uint64_t key_of(const Context& context, int64_t sample) {
  return mix(mix(context.seed, static_cast<uint64_t>(context.step)), static_cast<uint64_t>(sample));
}

Draw make_draw(double p, DropoutSite site, const Context& context) {
  return {
      {}, static_cast<uint32_t>(context.layer), static_cast<uint32_t>(site), static_cast<uint32_t>(p * 4294967296.0)};
}

// Calls use(first element of a piece in the tensor, its random words, its number of elements) for each piece.
template <typename Use>
void for_each_piece(const Draw& draw, const Use& use) {
  // Index of the range, and the element of the sample to which a piece's first word belongs.
  std::vector<std::pair<size_t, int64_t>> pieces;
  for (size_t r = 0; r < draw.ranges.size(); ++r) {
    const SampleRange& range = draw.ranges[r];
    for (int64_t at = range.first / kPiece * kPiece; at < range.first + range.count; at += kPiece)
      pieces.emplace_back(r, at);
  }
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 64, [&](int64_t begin, int64_t end) {
    uint32_t words[kPiece];
    for (int64_t i = begin; i < end; ++i) {
      const auto [r, at] = pieces[static_cast<size_t>(i)];
      const SampleRange& range = draw.ranges[r];
      kernels::philox_words({philox_key(range.key), draw.layer, draw.site}, static_cast<uint64_t>(at / 4), kCounters,
                            words);
      const int64_t from = std::max(at, range.first), to = std::min(at + kPiece, range.first + range.count);
      use(range.at + from - range.first, words + (from - at), to - from);
    }
  });
}

at::Tensor apply_mask_on_device(const at::Tensor& in, const Draw& draw, double p) {
  at::Tensor out = at::empty_like(in);
  std::vector<kernels::DropoutRange> ranges;
  for (const SampleRange& range : draw.ranges) ranges.push_back({range.key, range.first, range.at, range.count});
  kernels_of(in).dropout(on_stream(in), {.type = dtype_of(in.scalar_type()),
                                         .count = in.numel(),
                                         .ranges = std::move(ranges),
                                         .layer = draw.layer,
                                         .site = draw.site,
                                         .threshold = draw.threshold,
                                         .scale = static_cast<float>(1 / (1 - p)),
                                         .x = in.const_data_ptr(),
                                         .y = out.mutable_data_ptr()});
  return out;
}

// Returns x * keep / (1 - p), for values and gradients alike. Elements behind the ranges stay as they are.
at::Tensor apply_mask(const at::Tensor& x, const Draw& draw, double p) {
  const at::Tensor in = x.contiguous();
  int64_t num_drawn = 0;
  for (const SampleRange& range : draw.ranges) num_drawn += range.count;
  if (!in.is_cpu()) return apply_mask_on_device(in, draw, p);
  if (in.scalar_type() != at::kFloat) {
    at::Tensor keep = at::ones(in.sizes(), at::kBool);
    bool* mask = keep.mutable_data_ptr<bool>();
    for_each_piece(draw, [&](int64_t at, const uint32_t* words, int64_t count) {
      for (int64_t i = 0; i < count; ++i) mask[at + i] = words[i] >= draw.threshold;
    });
    at::Tensor out = in * keep * (1 / (1 - p));
    if (num_drawn < in.numel())
      out.view(-1)
          .narrow(0, num_drawn, in.numel() - num_drawn)
          .copy_(in.view(-1).narrow(0, num_drawn, in.numel() - num_drawn));
    return out;
  }
  at::Tensor out = at::empty_like(in);
  const float* from = in.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  const float scale = static_cast<float>(1 / (1 - p));
  for_each_piece(draw, [&](int64_t at, const uint32_t* words, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[at + i] = words[i] >= draw.threshold ? from[at + i] * scale : 0.0f;
  });
  std::copy(from + num_drawn, from + in.numel(), to + num_drawn);
  return out;
}

// Saves the ranges and not the mask: backward draws the same words again.
struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Draw& draw,
                            double p) {
    std::vector<int64_t> ranges;
    for (const SampleRange& range : draw.ranges)
      ranges.insert(ranges.end(), {static_cast<int64_t>(range.key), range.first, range.at, range.count});
    context->saved_data["ranges"] = std::move(ranges);
    context->saved_data["where"] = std::vector<int64_t>{draw.layer, draw.site, draw.threshold};
    context->saved_data["p"] = p;
    return apply_mask(x, draw, p);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const std::vector<int64_t> ranges = context->saved_data["ranges"].toIntVector();
    const std::vector<int64_t> where = context->saved_data["where"].toIntVector();
    Draw draw{{}, static_cast<uint32_t>(where[0]), static_cast<uint32_t>(where[1]), static_cast<uint32_t>(where[2])};
    for (size_t i = 0; i < ranges.size(); i += 4)
      draw.ranges.push_back({static_cast<uint64_t>(ranges[i]), ranges[i + 1], ranges[i + 2], ranges[i + 3]});
    return {apply_mask(gradients[0], draw, context->saved_data["p"].toDouble()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, DropoutSite site, const Context& context, int64_t first) {
  check_probability(p);
  if (p == 0 || !context.training || x.numel() == 0) return x;
  HERD_CHECK_EQ(static_cast<int64_t>(context.samples.size()), x.size(0));
  Draw draw = make_draw(p, site, context);
  const int64_t elements = x.numel() / x.size(0);
  for (const int64_t sample : context.samples)
    draw.ranges.push_back(
        {key_of(context, sample), first, static_cast<int64_t>(draw.ranges.size()) * elements, elements});
  return DropoutFunction::apply(x, draw, p);
}

at::Tensor dropout_pairs(const at::Tensor& x, double p, DropoutSite site, const Context& context, int64_t first_head,
                         const std::vector<TokenSpan>& queries, const std::vector<TokenSpan>& keys) {
  check_probability(p);
  if (p == 0 || !context.training || x.numel() == 0) return x;
  Draw draw = make_draw(p, site, context);
  const int64_t T = context.cut.tokens;
  int64_t at = 0;
  for (const int64_t sample : context.samples) {
    for (int64_t head = first_head; head < first_head + x.size(1); ++head) {
      for (const auto& [first_query, num_queries] : queries) {
        for (int64_t query = first_query; query < first_query + num_queries; ++query) {
          for (const auto& [first_key, num_keys] : keys) {
            draw.ranges.push_back({key_of(context, sample), (head * T + query) * T + first_key, at, num_keys});
            at += num_keys;
          }
        }
      }
    }
  }
  HERD_CHECK_EQ(at, x.numel());
  return DropoutFunction::apply(x, draw, p);
}

at::Tensor dropout_tokens(const at::Tensor& x, double p, DropoutSite site, const Context& context) {
  check_probability(p);
  if (p == 0 || !context.training || x.numel() == 0) return x;
  const bool is_cut = context.cut.parts > 1, is_rows = x.dim() == 2;
  if (!is_rows && !is_cut) return dropout(x, p, site, context);
  Draw draw = make_draw(p, site, context);
  const int64_t D = x.size(-1), first_row = is_rows ? context.first_row : 0, last = first_row + x.numel() / D;
  const std::vector<TokenSpan> spans = is_cut ? context.cut.spans() : std::vector<TokenSpan>{{0, context.tokens}};
  int64_t row = 0;  // the first of a span
  for (const int64_t sample : context.samples) {
    for (const auto& [begin, count] : spans) {
      const int64_t from = std::max(first_row, row), to = std::min(last, row + count);
      if (from < to)
        draw.ranges.push_back(
            {key_of(context, sample), (begin + from - row) * D, (from - first_row) * D, (to - from) * D});
      row += count;
    }
  }
  return DropoutFunction::apply(x, draw, p);
}

}  // namespace herd::nn
