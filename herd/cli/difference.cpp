#include "herd/cli/difference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/residual_name.h"
#include "herd/storage/waiting_gradient_name.h"

namespace herd::cli {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::vector<float> read_tensor(CheckpointReader& reader, const std::string& name, const CheckpointTensor& tensor) {
  const TensorSlice whole = whole_slice(tensor.shape);
  std::vector<float> values(static_cast<size_t>(whole.elements.size()));
  reader.read(name, whole, std::as_writable_bytes(std::span(values)));
  return values;
}

// Tells whether a tensor is an fp32 weight: optimizer states are not compared.
bool is_compared(const std::string& name, const CheckpointTensor& tensor) {
  return tensor.dtype == DType::kF32 && !is_residual_name(name) && !is_waiting_gradient_name(name) &&
         !name.ends_with(".exp_avg") && !name.ends_with(".exp_avg_sq") && !name.ends_with(".momentum");
}

// Returns max |x - y| / max(scale, max |x|). It is not finite if a weight or a difference is not finite.
double tensor_difference(const std::vector<float>& x, const std::vector<float>& y, double scale) {
  double difference = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double delta = std::abs(static_cast<double>(x[i]) - y[i]);
    if (!std::isfinite(delta)) return delta;
    scale = std::max(scale, std::abs(static_cast<double>(x[i])));
    difference = std::max(difference, delta);
  }
  return difference == 0 ? 0 : difference / scale;
}

}  // namespace

Difference loss_difference(const std::vector<double>& a, const std::vector<double>& b) {
  Difference worst;
  if (a.size() != b.size() || a.empty())
    return {kInfinite, std::to_string(a.size()) + " steps against " + std::to_string(b.size())};
  for (size_t i = 0; i < a.size(); ++i) {
    const double relative = std::isfinite(a[i]) && a[i] == b[i] ? 0 : std::abs(a[i] - b[i]) / std::abs(a[i]);
    if (!std::isfinite(relative)) return {relative, "step " + std::to_string(i + 1)};
    if (relative > worst.relative) worst = {relative, "step " + std::to_string(i + 1)};
  }
  return worst;
}

Difference weight_difference(const std::string& checkpoint_a, const std::string& checkpoint_b, double lr_times_steps) {
  CheckpointReader a(checkpoint_a), b(checkpoint_b);
  for (const auto& [name, tensor] : b.manifest().tensors) {
    if (is_compared(name, tensor) && !a.manifest().tensors.contains(name)) return {kInfinite, name + ", which a lacks"};
  }
  Difference worst;
  int tensors = 0;
  for (const auto& [name, tensor] : a.manifest().tensors) {
    if (!is_compared(name, tensor)) continue;
    ++tensors;
    const auto found = b.manifest().tensors.find(name);
    if (found == b.manifest().tensors.end()) return {kInfinite, name + ", which b lacks"};
    if (found->second.dtype != tensor.dtype || found->second.shape != tensor.shape)
      return {kInfinite, name + ", which has another dtype or shape in b"};
    const double relative =
        tensor_difference(read_tensor(a, name, tensor), read_tensor(b, name, tensor), lr_times_steps);
    if (!std::isfinite(relative)) return {relative, name};
    if (relative > worst.relative) worst = {relative, name};
  }
  if (tensors == 0) return {kInfinite, "no tensor: the checkpoints hold no fp32 weights"};
  return worst;
}

}  // namespace herd::cli
