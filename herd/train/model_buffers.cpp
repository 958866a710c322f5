#include "herd/train/model_buffers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <map>

namespace herd::train {

ModelBuffers::ModelBuffers(const std::vector<std::shared_ptr<nn::Block>>& blocks, const spec::ModelTable& table,
                           Communicator& comm)
    : comm_(comm.share()) {
  std::map<std::string, at::Tensor> own;
  for (const auto& block : blocks) {
    for (const nn::Buffer& buffer : block->buffers()) own.insert({buffer.name, buffer.value});
  }
  std::vector<int64_t> first_ranks;
  for (const spec::BlockShape& block : table.blocks) {
    for (const spec::ParameterShape& shape : block.buffers) {
      const auto found = own.find(shape.name);
      buffers_.push_back({shape.name, shape.elements(), found == own.end() ? at::Tensor() : found->second});
      names_.insert(shape.name);
      first_ranks.push_back(buffers_.back().value.defined() ? comm.rank() : comm.size());
    }
  }
  if (buffers_.empty()) return;
  comm_.all_reduce(first_ranks, {.op = ReduceOp::kMin, .name = "ranks of buffers"});
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].first_rank = static_cast<int>(first_ranks[i]);
}

// The first rank adds what it has to zeros of all others, in fp64, which holds the elements of any buffer exactly.
void ModelBuffers::synchronize() {
  if (buffers_.empty() || comm_.size() == 1) return;
  const at::NoGradGuard no_grad;
  int64_t elements = 0;
  for (const Buffer& buffer : buffers_) elements += buffer.elements;
  std::vector<double> all(static_cast<size_t>(elements));
  const auto for_each_own = [&](const auto& visit) {
    int64_t at = 0;
    for (const Buffer& buffer : buffers_) {
      if (buffer.value.defined())
        visit(buffer, at::from_blob(all.data() + at, buffer.value.sizes(), at::TensorOptions(at::kDouble)));
      at += buffer.elements;
    }
  };
  for_each_own([&](const Buffer& buffer, const at::Tensor& part) {
    if (buffer.first_rank == comm_.rank()) part.copy_(buffer.value);
  });
  comm_.all_reduce(all, {.name = "buffers of blocks"});
  for_each_own([](const Buffer& buffer, const at::Tensor& part) { buffer.value.copy_(part); });
}

std::vector<NamedTensor> ModelBuffers::own() const {
  std::vector<NamedTensor> out;
  for (const Buffer& buffer : buffers_) {
    if (buffer.value.defined()) out.push_back(whole_tensor(buffer.name, buffer.value));
  }
  return out;
}

std::vector<NamedTensor> ModelBuffers::saved() const {
  std::vector<NamedTensor> out;
  for (const Buffer& buffer : buffers_) {
    if (buffer.value.defined() && buffer.first_rank == comm_.rank())
      out.push_back(whole_tensor(buffer.name, buffer.value));
  }
  return out;
}

}  // namespace herd::train
