#include "herd/ddp/distributed_data_parallel.h"

#include <set>
#include <sstream>

#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/same_on_all_ranks.h"

namespace herd::ddp {
namespace {

std::string describe(const std::string& name, const at::Tensor& tensor) {
  std::ostringstream text;
  text << name << " " << tensor.sizes() << " " << dtype_name(dtype_of(tensor.scalar_type()));
  if (!tensor.requires_grad()) text << " frozen";
  return text.str();
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

// Compares and broadcasts all parameters and buffers. Returns each parameter that requires grad, once.
std::vector<NamedParameter> agree_on_parameters(const torch::nn::Module& module, Communicator& comm) {
  constexpr std::string_view kFix = "build the same module on every rank";
  std::vector<std::string> lines;
  for (const auto& item : module.named_parameters()) lines.push_back(describe(item.key(), item.value()));
  comm::check_same_on_all_ranks(comm, "parameter", lines, kFix);
  lines.clear();
  for (const auto& item : module.named_buffers()) lines.push_back(describe(item.key(), item.value()));
  comm::check_same_on_all_ranks(comm, "buffer", lines, kFix);

  std::vector<NamedParameter> parameters;
  std::set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    broadcast_from_rank_zero(comm, item.key(), item.value());
    if (item.value().requires_grad()) parameters.push_back({item.key(), item.value()});
  }
  for (const auto& item : module.named_buffers()) broadcast_from_rank_zero(comm, item.key(), item.value());
  return parameters;
}

}  // namespace

DataParallelModule::DataParallelModule(std::shared_ptr<torch::nn::Module> module, Communicator& comm,
                                       const DataParallelOptions& options)
    : module_(std::move(module)),
      comm_(comm),
      buffers_(options.buffers),
      reducer_(agree_on_parameters(*module_, comm), comm, options) {}

void DataParallelModule::begin_forward() {
  reducer_.check_ready();
  if (buffers_ == ModuleBuffers::kLocal || !module_->is_training() || !reducer_.reducing()) return;
  for (const auto& item : module_->named_buffers()) broadcast_from_rank_zero(comm_, item.key(), item.value());
}

}  // namespace herd::ddp
