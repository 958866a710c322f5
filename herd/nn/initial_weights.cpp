#include "herd/nn/initial_weights.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <vector>

#include "herd/bridge/split_float.h"
#include "herd/kernels/philox_stream.h"
#include "herd/nn/philox.h"

namespace herd::nn {
namespace {

constexpr int64_t kPiece = 1 << 20;  // elements that are converted at a time

void write_normal(const ParameterSpec& spec, uint64_t seed, int64_t begin, float* out, int64_t count) {
  const kernels::PhiloxStream stream{.key = philox_key(mix(seed, hash_name(spec.name)))};
  const float scale = static_cast<float>(spec.standard_deviation);
  const int64_t end = begin + count;
  const auto part = [&](int64_t four) {  // of a counter's four elements, those in the range
    float values[4];
    kernels::philox_normals(stream, static_cast<uint64_t>(four), 1, scale, values);
    for (int64_t at = std::max(begin, 4 * four); at < std::min(end, 4 * four + 4); ++at)
      out[at - begin] = values[at - 4 * four];
  };
  const int64_t first = (begin + 3) / 4, last = end / 4;  // counters whose elements are all wanted
  if (first > last) return part(last);                    // inside one counter
  if (begin % 4 != 0) part(first - 1);
  if (end % 4 != 0) part(last);
  at::parallel_for(first, last, 1 << 14, [&](int64_t from, int64_t to) {
    kernels::philox_normals(stream, static_cast<uint64_t>(from), to - from, scale, out + 4 * from - begin);
  });
}

}  // namespace

namespace {

void write_run(const ParameterSpec& spec, uint64_t seed, int64_t begin, const at::Tensor& out) {
  const bool is_low = out.scalar_type() == at::kShort;
  if (spec.init != Init::kNormal) {
    out.fill_(spec.init == Init::kOnes && !is_low ? 1.0 : 0.0);  // whose lower half is zero, too
  } else if (out.scalar_type() == at::kFloat && out.is_cpu()) {
    write_normal(spec, seed, begin, out.mutable_data_ptr<float>(), out.numel());
  } else {
    // On the host's heap: the device may have no more than weights and states when they are drawn.
    const auto room = static_cast<size_t>(std::min(kPiece, out.numel()));
    std::vector<float> drawn(room);
    std::vector<uint16_t> halves(room);
    for (int64_t at = 0; at < out.numel(); at += kPiece) {
      const at::Tensor piece = out.view(-1).narrow(0, at, std::min(kPiece, out.numel() - at));
      const at::Tensor values = at::from_blob(drawn.data(), piece.sizes(), at::kFloat);
      write_normal(spec, seed, begin + at, drawn.data(), piece.numel());
      if (is_low)
        split_float(values, at::from_blob(halves.data(), piece.sizes(), at::kBFloat16), piece);
      else if (out.scalar_type() == at::kBFloat16)
        split_float(values, piece, at::from_blob(halves.data(), piece.sizes(), at::kShort));
      else
        piece.copy_(values);
    }
  }
}

}  // namespace

void write_initial_weights(const ParameterSpec& spec, uint64_t seed, int64_t begin, const at::Tensor& out) {
  for_each_run(spec, begin, begin + out.numel(), [&](int64_t at, int64_t whole, int64_t count) {
    write_run(spec, seed, whole, out.view(-1).narrow(0, at - begin, count));
  });
}

}  // namespace herd::nn
