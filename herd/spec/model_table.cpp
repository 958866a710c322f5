#include "herd/spec/model_table.h"

#include <algorithm>

namespace herd::spec {

int64_t ModelTable::parameters() const {
  int64_t sum = 0;
  for (const auto& group : groups) sum += group.elements();
  return sum;
}

int64_t ModelTable::frozen_parameters() const {
  int64_t sum = 0;
  for (const auto& group : groups) sum += group.frozen ? group.elements() : 0;
  return sum;
}

int ModelTable::first_trained() const {
  const auto is_trained = [&](const BlockShape& block) {
    return std::any_of(block.groups.begin(), block.groups.end(),
                       [&](int group) { return !groups[static_cast<size_t>(group)].frozen; });
  };
  return static_cast<int>(std::find_if(blocks.begin(), blocks.end(), is_trained) - blocks.begin());
}

int64_t ModelTable::group_elements(int group) const {
  const ParameterGroupShape& shape = groups[static_cast<size_t>(group)];
  return shape.of_experts ? shape.elements() / ep : shape.elements_of_rank(tp);
}

std::vector<TensorId> ModelTable::inputs_of(int block) const {
  const auto& inputs = blocks[static_cast<size_t>(block)].inputs;
  return inputs.empty() ? std::vector<TensorId>{{block, 0}} : inputs;
}

std::map<TensorId, std::vector<int>> ModelTable::readers() const {
  std::map<TensorId, std::vector<int>> out;
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    for (const TensorId input : inputs_of(b)) out[input].push_back(b);
  }
  return out;
}

namespace {

// Returns the tensors that the batch or a block gives, where the table lists them.
const std::vector<TensorShape>& tensors_of(const ModelTable& model, int producer) {
  return producer == 0 ? model.batch : model.blocks[static_cast<size_t>(producer) - 1].outputs;
}

}  // namespace

int64_t ModelTable::tensor_bytes(TensorId tensor) const {
  const auto& listed = tensors_of(*this, tensor.producer);
  if (listed.empty()) return blocks[static_cast<size_t>(tensor.producer)].input_bytes;
  return listed[static_cast<size_t>(tensor.tensor)].bytes;
}

bool ModelTable::is_differentiable(TensorId tensor) const {
  const auto& listed = tensors_of(*this, tensor.producer);
  return listed.empty() || listed[static_cast<size_t>(tensor.tensor)].differentiable;
}

std::vector<bool> ModelTable::have_backward() const {
  std::vector<bool> out;
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    const std::vector<int>& block_groups = blocks[static_cast<size_t>(b)].groups;
    const std::vector<TensorId> inputs = inputs_of(b);
    const auto has_gradient_of_earlier = [&](TensorId input) {
      return input.producer > 0 && out[static_cast<size_t>(input.producer) - 1] && is_differentiable(input);
    };
    out.push_back(
        std::ranges::any_of(block_groups, [&](int group) { return !groups[static_cast<size_t>(group)].frozen; }) ||
        std::ranges::any_of(inputs, has_gradient_of_earlier));
  }
  return out;
}

bool ModelTable::has_gradient(TensorId tensor, int first) const {
  return tensor.producer > 0 && has_backward(tensor.producer - 1, first) && is_differentiable(tensor);
}

bool ModelTable::has_backward(int block, int first) const {
  return block >= first && have_backward()[static_cast<size_t>(block)];
}

bool ModelTable::is_split() const {
  return std::ranges::any_of(blocks, [](const BlockShape& block) { return block.split != Split::kNone; });
}

double ModelTable::flops() const {
  double sum = 0;
  for (const BlockShape& block : blocks) {
    for (const PassCost& cost : {block.forward, block.backward}) sum += cost.matmul_flops + cost.attention_flops;
  }
  return sum;
}

}  // namespace herd::spec
