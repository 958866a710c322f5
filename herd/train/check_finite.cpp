#include "herd/train/check_finite.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>

#include "herd/base/error.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/kernels/finite.h"

namespace herd::train {
namespace {

constexpr int64_t kPiece = 1 << 16;  // elements that are looked at together, as fp32; they fit a cache

// Returns the index of the first element that is not finite, -1 if all are. Of split fp32 the upper halves tell it.
int64_t first_non_finite(const at::Tensor& flat) {
  if (!flat.is_cpu() && flat.is_contiguous() && flat.scalar_type() != at::kDouble) {
    const at::Tensor index = at::empty({1}, flat.options().dtype(at::kLong));
    kernels_of(flat).first_non_finite(on_stream(flat), {.type = dtype_of(flat.scalar_type()),
                                                        .values = flat.const_data_ptr(),
                                                        .count = flat.numel(),
                                                        .index = index.mutable_data_ptr<int64_t>()});
    return index.item<int64_t>();
  }
  for (int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
    const at::Tensor piece = flat.narrow(0, begin, std::min(kPiece, flat.numel() - begin)).to(at::kCPU, at::kFloat);
    const int64_t found = kernels::first_non_finite(piece.const_data_ptr<float>(), piece.numel());
    if (found >= 0) return begin + found;
  }
  return -1;
}

// Returns the indices in the global tensor of an element of the slice, like "[5, 7]".
std::string place_text(const TensorSlice& slice, int64_t element) {
  int64_t rest = slice.elements.begin + element;
  std::string text;
  for (size_t d = slice.box.size(); d-- > 0; rest /= slice.box[d].size()) {
    const int64_t index = slice.box[d].begin + rest % slice.box[d].size();
    text = std::to_string(index) + (text.empty() ? "" : ", ") + text;
  }
  return "[" + text + "]";
}

}  // namespace

void check_finite(const std::vector<NamedTensor>& tensors, const std::string& source) {
  for (const NamedTensor& tensor : tensors) {
    if (!tensor.value.is_floating_point()) continue;
    const at::Tensor flat = tensor.value.view(-1);
    const int64_t first = first_non_finite(flat);
    if (first < 0) continue;
    const int64_t count = flat.numel() - at::isfinite(flat).sum().item<int64_t>();
    const bool is_nan = std::isnan(flat[first].item<double>());
    throw Error(Code::kBadConfig,
                "tensor \"" + tensor.name + "\" of " + source + " is not finite: " + std::to_string(count) +
                    " of the " + std::to_string(flat.numel()) + " elements that this rank loads " +
                    (count == 1 ? "is" : "are") + " NaN or infinite, the first, " + (is_nan ? "NaN" : "infinity") +
                    ", at " + place_text(tensor.slice, first) +
                    "\n  fix: checkpoint.resume = an older checkpoint of the run, from before it became so");
  }
}

}  // namespace herd::train
