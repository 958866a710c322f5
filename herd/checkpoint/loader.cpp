#include "herd/checkpoint/loader.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <sstream>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/base/printable.h"
#include "herd/bridge/split_float.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/storage/checkpoint_folder.h"

namespace herd {
namespace {

constexpr int64_t kPiece = 1 << 20;  // elements that are converted at a time

std::string list_of(const std::vector<std::string>& names) {
  constexpr size_t kMaxShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxShown); ++i) text += (i ? ", " : "") + printable(names[i]);
  if (names.size() > kMaxShown) text += " and " + std::to_string(names.size() - kMaxShown) + " more";
  return text;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::ostringstream text;
  text << at::IntArrayRef(shape);
  return text.str();
}

void check_names(const CheckpointReader& reader, const std::set<std::string>& wanted) {
  std::vector<std::string> missing, extra;
  for (const auto& name : wanted) {
    if (!reader.manifest().tensors.contains(name)) missing.push_back(name);
  }
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    if (!wanted.contains(name)) extra.push_back(name);
  }
  if (missing.empty() && extra.empty()) return;
  throw Error(Code::kBadConfig,
              "the checkpoint " + reader.folder().string() +
                  " is of another model or optimizer:" + (missing.empty() ? "" : "\n  it lacks " + list_of(missing)) +
                  (extra.empty() ? "" : "\n  it holds, and this run does not, " + list_of(extra)) +
                  "\n  fix: the [model] and [optimizer] it was saved with (herd checkpoint inspect shows them), or " +
                  "checkpoint.resume = \"none\"");
}

void check_dtype_and_shape(const CheckpointReader& reader, const NamedTensor& tensor) {
  const auto& saved = reader.manifest().tensors.at(tensor.name);
  const DType run_dtype = dtype_of(type_of(tensor));
  const bool is_convertible = saved.dtype == run_dtype || (is_floating(saved.dtype) && is_floating(run_dtype));
  if (is_convertible && saved.shape == tensor.shape) return;
  throw Error(Code::kBadConfig,
              "tensor \"" + tensor.name + "\" is " + std::string(dtype_name(saved.dtype)) + " " +
                  shape_text(saved.shape) + " in the checkpoint " + reader.folder().string() + ", " +
                  std::string(dtype_name(run_dtype)) + " " + shape_text(tensor.shape) +
                  " in this run\n  fix: the [model] it was saved with (herd checkpoint inspect shows it)");
}

void read(CheckpointReader& reader, const std::string& name, const TensorSlice& slice, const at::Tensor& out) {
  reader.read(name, slice, {static_cast<std::byte*>(out.data_ptr()), static_cast<size_t>(out.nbytes())});
}

// Reads the tensor's slice into its own memory, or a piece at a time through a tensor of the saved type.
void fill(CheckpointReader& reader, NamedTensor& tensor) {
  const at::NoGradGuard no_grad;
  const int64_t count = tensor.value.numel();
  HERD_CHECK_EQ(count, tensor.slice.elements.size());
  const auto saved = scalar_type_of(reader.manifest().tensors.at(tensor.name).dtype);
  const bool dense = tensor.value.is_cpu() && tensor.value.is_contiguous();
  const at::Tensor flat = dense ? tensor.value.view(-1) : at::empty({count}, tensor.value.options().device(at::kCPU));
  const at::Tensor low = !tensor.low_halves.defined() ? at::Tensor()
                         : dense                      ? tensor.low_halves.view(-1)
                                                      : at::empty({tensor.value.numel()}, at::kShort);
  if (type_of(tensor) == saved && !tensor.low_halves.defined()) {
    read(reader, tensor.name, tensor.slice, flat);
  } else {
    TensorSlice slice = tensor.slice;
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      const int64_t size = std::min(kPiece, count - begin);
      slice.elements.begin = tensor.slice.elements.begin + begin;
      slice.elements.end = slice.elements.begin + size;
      const at::Tensor piece = at::empty({size}, saved);
      read(reader, tensor.name, slice, piece);
      if (tensor.low_halves.defined())
        split_float(piece.to(at::kFloat), flat.narrow(0, begin, size), low.narrow(0, begin, size));
      else
        flat.narrow(0, begin, size).copy_(piece);
    }
  }
  if (dense) return;
  tensor.value.copy_(flat.view(tensor.value.sizes()));
  if (low.defined()) tensor.low_halves.copy_(low.view(tensor.low_halves.sizes()));
}

}  // namespace

NamedTensor whole_tensor(std::string name, at::Tensor value, at::Tensor low) {
  const std::vector<int64_t> shape = value.sizes().vec();
  return {std::move(name), std::move(value), whole_slice(shape), shape, std::move(low)};
}

NamedTensor flat_shard(std::string name, at::Tensor value, std::vector<int64_t> shape, int64_t begin, at::Tensor low) {
  auto slice = slice_of_elements(shape, begin, begin + value.numel());
  return {std::move(name), std::move(value), std::move(slice), std::move(shape), std::move(low)};
}

at::ScalarType type_of(const NamedTensor& tensor) {
  return tensor.low_halves.defined() ? at::kFloat : tensor.value.scalar_type();
}

void load_tensors(CheckpointReader& reader, std::vector<NamedTensor>& tensors, const std::set<std::string>& all_names) {
  std::set<std::string> wanted = all_names;
  for (const auto& tensor : tensors) wanted.insert(tensor.name);
  check_names(reader, wanted);
  for (const auto& tensor : tensors) check_dtype_and_shape(reader, tensor);
  for (auto& tensor : tensors) fill(reader, tensor);
}

std::optional<std::filesystem::path> find_resumable(const std::filesystem::path& root, CheckpointPeers& peers) {
  std::string found;
  if (peers.rank() == 0) {
    std::vector<std::string> passed_over;
    if (const auto newest = newest_whole_checkpoint(root, passed_over)) found = newest->folder.string();
    for (const auto& reason : passed_over) log_warning("passed over a broken checkpoint: " + reason);
  }
  found = peers.broadcast_from_root(found);
  if (found.empty()) return {};
  return found;
}

}  // namespace herd
