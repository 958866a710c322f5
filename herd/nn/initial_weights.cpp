#include "herd/nn/initial_weights.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <vector>

#include "herd/bridge/split_float.h"
#include "herd/kernels/philox_stream.h"
#include "herd/nn/philox.h"

namespace herd::nn {
namespace {

constexpr int64_t kPiece = 1 << 20;  // elements that are converted at a time

// Writes elements [begin, begin + count) of a whole parameter; each counter of the stream gives four elements.
void write_normal(const ParameterSpec& spec, uint64_t seed, int64_t begin, float* out, int64_t count) {
  const kernels::PhiloxStream stream{.key = philox_key(mix(seed, hash_name(spec.name)))};
  const float scale = static_cast<float>(spec.standard_deviation);
  const int64_t end = begin + count;
  const auto write_partly = [&](int64_t counter) {  // writes those of a counter's elements that are in the range
    float values[4];
    kernels::philox_normals(stream, static_cast<uint64_t>(counter), 1, scale, values);
    for (int64_t at = std::max(begin, 4 * counter); at < std::min(end, 4 * counter + 4); ++at)
      out[at - begin] = values[at - 4 * counter];
  };
  const int64_t first = (begin + 3) / 4, last = end / 4;  // counters with all four elements in the range
  if (first > last) return write_partly(last);            // the range is inside one counter
  if (begin % 4 != 0) write_partly(first - 1);
  if (end % 4 != 0) write_partly(last);
  at::parallel_for(first, last, 1 << 14, [&](int64_t from, int64_t to) {
    kernels::philox_normals(stream, static_cast<uint64_t>(from), to - from, scale, out + 4 * from - begin);
  });
}

}  // namespace

namespace {

// Writes fp32 numbers to a piece of any type; `halves` has room for the halves that are not asked for.
void write_piece(const at::Tensor& values, const at::Tensor& piece, std::vector<uint16_t>& halves) {
  if (!piece.is_cpu() && (piece.scalar_type() == at::kShort || piece.scalar_type() == at::kBFloat16)) {
    const at::Tensor on_host = at::empty(piece.sizes(), piece.options().device(at::kCPU));
    write_piece(values, on_host, halves);
    piece.copy_(on_host);
  } else if (piece.scalar_type() == at::kShort)
    split_float(values, at::from_blob(halves.data(), piece.sizes(), at::kBFloat16), piece);
  else if (piece.scalar_type() == at::kBFloat16)
    split_float(values, piece, at::from_blob(halves.data(), piece.sizes(), at::kShort));
  else
    piece.copy_(values);
}

// Writes a contiguous run of a whole parameter from element `begin` on: as fp32, as 16 bits, or as the lower halves.
void write_run(const ParameterSpec& spec, uint64_t seed, int64_t begin, const at::Tensor& out) {
  const bool is_low = out.scalar_type() == at::kShort;
  if (spec.init != Init::kNormal) {
    out.fill_(spec.init == Init::kOnes && !is_low ? 1.0 : 0.0);  // the lower half of 1.0 is 0
  } else if (out.scalar_type() == at::kFloat && out.is_cpu()) {
    write_normal(spec, seed, begin, out.mutable_data_ptr<float>(), out.numel());
  } else {
    // The pieces are on the host's heap: the device may have no more room than for weights and states.
    const auto piece_elements = static_cast<size_t>(std::min(kPiece, out.numel()));
    std::vector<float> drawn(piece_elements);
    std::vector<uint16_t> halves(piece_elements);
    for (int64_t at = 0; at < out.numel(); at += kPiece) {
      const at::Tensor piece = out.view(-1).narrow(0, at, std::min(kPiece, out.numel() - at));
      const at::Tensor values = at::from_blob(drawn.data(), piece.sizes(), at::kFloat);
      write_normal(spec, seed, begin + at, drawn.data(), piece.numel());
      write_piece(values, piece, halves);
    }
  }
}

}  // namespace

void write_weights(const at::Tensor& values, const at::Tensor& out) {
  std::vector<uint16_t> halves(static_cast<size_t>(std::min(kPiece, out.numel())));
  for (int64_t at = 0; at < out.numel(); at += kPiece) {
    const int64_t count = std::min(kPiece, out.numel() - at);
    write_piece(values.narrow(0, at, count), out.narrow(0, at, count), halves);
  }
}

void write_initial_weights(const ParameterSpec& spec, uint64_t seed, int64_t begin, const at::Tensor& out) {
  for_each_run(spec, begin, begin + out.numel(), [&](int64_t at, int64_t whole, int64_t count) {
    write_run(spec, seed, whole, out.view(-1).narrow(0, at - begin, count));
  });
}

}  // namespace herd::nn
