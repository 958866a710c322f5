#include "herd/train/take_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/bridge/split_float.h"

namespace herd::train {
namespace {

constexpr char kPositions[] = "wpe.weight";

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

// Says whether the weight can fill the tensor. A table of fewer positions is the first rows of a longer one.
bool fits(const NamedTensor& tensor, const convert::Weight& weight) {
  if (tensor.shape == weight.shape) return true;
  return tensor.name == kPositions && tensor.shape.size() == 2 && weight.shape.size() == 2 &&
         tensor.shape[1] == weight.shape[1] && tensor.shape[0] < weight.shape[0];
}

const convert::Weight& weight_for(const convert::WeightSource& source, const NamedTensor& tensor) {
  for (const convert::Weight& weight : source.weights()) {
    if (weight.name != tensor.name) continue;
    if (fits(tensor, weight)) return weight;
    throw Error(Code::kBadConfig, "weight \"" + tensor.name + "\" is " + shape_text(weight.shape) + " in " +
                                      source.path().string() + ", " + shape_text(tensor.shape) +
                                      " in this run\n  fix: the [model] of those weights");
  }
  throw Error(Code::kBadConfig, source.path().string() + " holds no weight \"" + tensor.name +
                                    "\", which this run has\n  fix: the [model] of those weights");
}

void fill(convert::WeightSource& source, const convert::Weight& weight, NamedTensor& tensor) {
  const bool dense = tensor.value.is_cpu() && tensor.value.is_contiguous();
  const at::Tensor flat =
      dense ? tensor.value.view(-1) : at::empty({tensor.value.numel()}, tensor.value.options().device(at::kCPU));
  const at::Tensor low = !tensor.low_halves.defined() ? at::Tensor()
                         : dense                      ? tensor.low_halves.view(-1)
                                                      : at::empty({tensor.value.numel()}, at::kShort);
  int64_t at = 0;
  convert::read_slice(source, weight, tensor.slice, [&](std::span<const float> values) {
    const auto count = static_cast<int64_t>(values.size());
    const at::Tensor piece = at::from_blob(const_cast<float*>(values.data()), {count}, at::kFloat);
    if (tensor.low_halves.defined())
      split_float(piece, flat.narrow(0, at, count), low.narrow(0, at, count));
    else
      flat.narrow(0, at, count).copy_(piece);
    at += count;
  });
  HERD_CHECK_EQ(at, flat.numel());
  if (dense) return;
  tensor.value.copy_(flat.view(tensor.value.sizes()));
  if (low.defined()) tensor.low_halves.copy_(low.view(tensor.low_halves.sizes()));
}

}  // namespace

void take_weights(convert::WeightSource& source, std::vector<NamedTensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<const convert::Weight*> weights;
  for (const NamedTensor& tensor : tensors) weights.push_back(&weight_for(source, tensor));
  for (size_t i = 0; i < tensors.size(); ++i) fill(source, *weights[i], tensors[i]);
}

}  // namespace herd::train
