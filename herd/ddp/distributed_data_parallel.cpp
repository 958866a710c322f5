#include "herd/ddp/distributed_data_parallel.h"

#include <torch/nn/modules/embedding.h>

#include <optional>
#include <set>
#include <sstream>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/same_on_all_ranks.h"
#include "herd/kernels/codec.h"

namespace herd::ddp {
namespace {

using Tensors = std::set<const void*>;  // by their TensorImpl

std::string describe(const std::string& name, const at::Tensor& tensor, const Tensors& sparse = {}) {
  std::ostringstream text;
  text << name << " " << tensor.sizes() << " " << dtype_name(dtype_of(tensor.scalar_type()));
  if (!tensor.requires_grad()) text << " frozen";
  if (sparse.contains(tensor.unsafeGetTensorImpl())) text << " with a sparse gradient";
  return text.str();
}

// Returns the weights of embeddings whose gradients are sparse.
Tensors sparse_weights(const torch::nn::Module& module) {
  Tensors weights;
  for (const auto& part : module.modules()) {
    if (const auto* table = dynamic_cast<const torch::nn::EmbeddingImpl*>(part.get())) {
      if (table->options.sparse()) weights.insert(table->weight.unsafeGetTensorImpl());
    } else if (const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(part.get())) {
      if (bag->options.sparse()) weights.insert(bag->weight.unsafeGetTensorImpl());
    }
  }
  return weights;
}

void broadcast_from_rank_zero(Communicator& comm, const std::string& name, const at::Tensor& tensor) {
  at::NoGradGuard no_grad;
  if (tensor.is_non_overlapping_and_dense()) {
    comm.broadcast(tensor.detach(), 0, {.name = name});
    return;
  }
  at::Tensor copy = tensor.detach().contiguous();
  comm.broadcast(copy, 0, {.name = name});
  tensor.detach().copy_(copy);
}

std::string describe(const std::optional<kernels::CodecSettings>& codec) {
  if (!codec) return "codec none";
  return "codec " + std::string(kernels::codec_row(codec->kind).name) + ", block " + std::to_string(codec->block) +
         ", ratio " + format_number(codec->ratio);
}

// Compares what decides which operations ranks call, and in which order.
void check_same_options(Communicator& comm, const DataParallelOptions& options) {
  const auto choice = [](bool first, const char* name, const char* other) { return first ? name : other; };
  comm::check_same_on_all_ranks(
      comm, "option",
      {"bucket_bytes " + std::to_string(options.bucket_bytes),
       "first_bucket_bytes " + std::to_string(options.first_bucket_bytes),
       std::string("unused ") + choice(options.unused == UnusedParameters::kError, "kError", "kZero"),
       "algorithm \"" + options.algorithm + "\"", describe(options.codec),
       std::string("buffers ") + choice(options.buffers == ModuleBuffers::kLocal, "kLocal", "kFromRankZero")},
      "the same DataParallelOptions on every rank");
}

// Compares the options, and compares and broadcasts all parameters and buffers. Returns each parameter that requires
// grad, once.
std::vector<NamedParameter> agree_on_parameters(const torch::nn::Module& module, Communicator& comm,
                                                const DataParallelOptions& options) {
  check_same_options(comm, options);
  constexpr std::string_view kFix = "build the same module on every rank";
  const Tensors sparse = sparse_weights(module);
  std::vector<std::string> lines;
  for (const auto& item : module.named_parameters()) lines.push_back(describe(item.key(), item.value(), sparse));
  comm::check_same_on_all_ranks(comm, "parameter", lines, kFix);
  lines.clear();
  for (const auto& item : module.named_buffers()) lines.push_back(describe(item.key(), item.value()));
  comm::check_same_on_all_ranks(comm, "buffer", lines, kFix);

  std::vector<NamedParameter> parameters;
  Tensors seen;
  for (const auto& item : module.named_parameters()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    broadcast_from_rank_zero(comm, item.key(), item.value());
    if (!item.value().requires_grad()) continue;
    parameters.push_back({item.key(), item.value(), sparse.contains(item.value().unsafeGetTensorImpl())});
  }
  for (const auto& item : module.named_buffers()) broadcast_from_rank_zero(comm, item.key(), item.value());
  return parameters;
}

std::string sizes_text(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

}  // namespace

DataParallelModule::DataParallelModule(std::shared_ptr<torch::nn::Module> module, Communicator& comm,
                                       const DataParallelOptions& options)
    : module_(std::move(module)),
      comm_(comm.share()),
      options_(options),
      reducer_(agree_on_parameters(*module_, comm, options), comm, options) {
  for (const auto& item : module_->named_parameters()) {
    const at::Tensor& tensor = item.value();
    wrapped_.push_back(
        {item.key(), tensor, tensor.scalar_type(), tensor.device(), tensor.sizes().vec(), tensor.requires_grad()});
  }
}

// A parameter that is frozen later is one without gradient, as kZero allows.
std::string DataParallelModule::change_of(const Wrapped& before, const at::Tensor& now) const {
  if (now.unsafeGetTensorImpl() != before.tensor.unsafeGetTensorImpl()) return "is another tensor";
  if (now.scalar_type() != before.dtype)
    return std::string("is ") + c10::toString(now.scalar_type()) + ", was " + c10::toString(before.dtype);
  if (now.device() != before.device) return "is on " + now.device().str() + ", was on " + before.device.str();
  if (now.sizes() != before.sizes) return "is " + sizes_text(now.sizes()) + ", was " + sizes_text(before.sizes);
  if (now.requires_grad() && !before.requires_grad) return "requires a gradient, was frozen";
  if (!now.requires_grad() && before.requires_grad && options_.unused == UnusedParameters::kError)
    return "is frozen, required a gradient";
  return "";
}

// The reducer's hooks sit on the parameters of the start, as they were: it never sees the gradient of another one.
void DataParallelModule::check_parameters() const {
  const auto parameters = module_->named_parameters();
  std::vector<std::string> changes;
  std::set<std::string_view> known;
  for (const Wrapped& before : wrapped_) {
    known.insert(before.name);
    const at::Tensor* now = parameters.find(before.name);
    const std::string change = now == nullptr ? "is gone" : change_of(before, *now);
    if (!change.empty()) changes.push_back(before.name + " " + change);
  }
  for (const auto& item : parameters) {
    if (!known.contains(item.key())) changes.push_back(item.key() + " is new");
  }
  if (changes.empty()) return;
  std::string text;
  for (size_t k = 0; k < changes.size() && k < 8; ++k) text += (k ? "; " : "") + changes[k];
  if (changes.size() > 8) text += " and " + std::to_string(changes.size() - 8) + " more";
  throw Error(Code::kBadConfig,
              std::to_string(changes.size()) + (changes.size() == 1 ? " parameter" : " parameters") +
                  " changed after the module was wrapped, on rank " + std::to_string(comm_.rank()) + ": " + text +
                  "\n  fix: convert, freeze and add parameters first, or make a new DistributedDataParallel, and a new "
                  "optimizer where tensors are new");
}

void DataParallelModule::begin_forward() {
  reducer_.check_ready();
  check_parameters();
  if (!module_->is_training() || !reducer_.reducing()) return;
  if (at::GradMode::is_enabled()) reducer_.count_forward();
  if (options_.buffers == ModuleBuffers::kLocal) return;
  for (const auto& item : module_->named_buffers()) broadcast_from_rank_zero(comm_, item.key(), item.value());
}

void DataParallelModule::join_without_batch() {
  check_parameters();
  reducer_.join_without_batch();
}

}  // namespace herd::ddp
