#include "herd/nn/joined_block.h"

#include <array>

namespace herd::nn {

JoinedBlock::JoinedBlock(std::string name, GroupList groups, LayerValues takes, std::vector<Part> parts,
                         LayerValues gives)
    : Block(std::move(name), std::move(groups)),
      takes_(std::move(takes)),
      parts_(std::move(parts)),
      gives_(std::move(gives)) {}

Tuple JoinedBlock::forward(const Tuple& x, const Context& context) {
  std::array<at::Tensor, 3> values;
  Tuple held;
  const auto value_of = [&](LayerValue value) -> at::Tensor& { return values[static_cast<size_t>(value)]; };
  const auto read = [&](const LayerValues& names) {
    Tuple out;
    for (const LayerValue name : names) out.push_back(value_of(name));
    return out;
  };
  for (size_t i = 0; i < x.size(); ++i) value_of(takes_.at(i)) = x[i];
  for (const Part& part : parts_) {
    const Tuple y = part.block->forward(read(part.reads), context);
    for (size_t i = 0; i < y.size(); ++i) value_of(part.writes.at(i)) = y[i];
    held.insert(held.end(), y.begin(), y.end());
  }
  return read(gives_);
}

std::vector<Buffer> JoinedBlock::buffers() const {
  std::vector<Buffer> out;
  for (const Part& part : parts_) {
    for (Buffer& buffer : part.block->buffers()) out.push_back(std::move(buffer));
  }
  return out;
}

}  // namespace herd::nn
