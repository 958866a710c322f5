#include "herd/checkpoint/loader.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <sstream>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/storage/checkpoint_folder.h"

namespace herd {
namespace {

std::string list_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
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

void check_kind(const CheckpointReader& reader, const NamedTensor& tensor) {
  const auto& saved = reader.manifest().tensors.at(tensor.name);
  const DType own = dtype_of(tensor.value.scalar_type());
  const bool alike = saved.dtype == own || (is_floating(saved.dtype) && is_floating(own));
  if (alike && saved.shape == tensor.shape) return;
  throw Error(Code::kBadConfig,
              "tensor \"" + tensor.name + "\" is " + std::string(dtype_name(saved.dtype)) + " " +
                  shape_text(saved.shape) + " in the checkpoint " + reader.folder().string() + ", " +
                  std::string(dtype_name(own)) + " " + shape_text(tensor.shape) +
                  " in this run\n  fix: the [model] it was saved with (herd checkpoint inspect shows it)");
}

// Reads the tensor's slice, through a host tensor of the saved type where its own memory won't do.
void fill(CheckpointReader& reader, NamedTensor& tensor) {
  const at::NoGradGuard no_grad;
  HERD_CHECK_EQ(tensor.value.numel(), tensor.slice.elements.size());
  const auto saved = scalar_type_of(reader.manifest().tensors.at(tensor.name).dtype);
  const bool direct = tensor.value.is_cpu() && tensor.value.is_contiguous() && tensor.value.scalar_type() == saved;
  const at::Tensor host =
      direct ? tensor.value : at::empty(tensor.value.sizes(), tensor.value.options().device(at::kCPU).dtype(saved));
  reader.read(tensor.name, tensor.slice,
              {static_cast<std::byte*>(host.data_ptr()), static_cast<size_t>(host.nbytes())});
  if (!direct) tensor.value.copy_(host);
}

}  // namespace

NamedTensor whole_tensor(std::string name, at::Tensor value) {
  const std::vector<int64_t> shape = value.sizes().vec();
  return {std::move(name), std::move(value), whole_tensor(shape), shape};
}

NamedTensor flat_shard(std::string name, at::Tensor value, std::vector<int64_t> shape, int64_t begin) {
  auto slice = element_range(shape, begin, begin + value.numel());
  return {std::move(name), std::move(value), std::move(slice), std::move(shape)};
}

void load_tensors(CheckpointReader& reader, std::vector<NamedTensor>& tensors, const std::set<std::string>& all_names) {
  std::set<std::string> wanted = all_names;
  for (const auto& tensor : tensors) wanted.insert(tensor.name);
  check_names(reader, wanted);
  for (const auto& tensor : tensors) check_kind(reader, tensor);
  for (auto& tensor : tensors) fill(reader, tensor);
}

void load_weights(CheckpointReader& reader, std::vector<NamedTensor>& tensors) {
  std::vector<std::string> missing;
  for (const auto& tensor : tensors) {
    if (!reader.manifest().tensors.contains(tensor.name)) missing.push_back(tensor.name);
  }
  if (!missing.empty()) {
    throw Error(Code::kBadConfig, "the checkpoint " + reader.folder().string() + " is of another model: it lacks " +
                                      list_of(missing) +
                                      "\n  fix: the [model] it was saved with (herd checkpoint inspect shows it)");
  }
  for (const auto& tensor : tensors) check_kind(reader, tensor);
  for (auto& tensor : tensors) fill(reader, tensor);
}

std::optional<std::filesystem::path> find_resumable(const std::filesystem::path& root, CheckpointPeers& peers) {
  std::string found;
  if (peers.rank() == 0) {
    std::vector<std::string> passed_over;
    if (const auto newest = newest_whole_checkpoint(root, passed_over)) found = newest->folder.string();
    for (const auto& reason : passed_over) log::warning("passed over a broken checkpoint: " + reason);
  }
  found = peers.from_root(found);
  if (found.empty()) return {};
  return found;
}

}  // namespace herd
