// One named weight: what it is (ParameterSpec), and its place in a group's flat tensors (Parameter).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace herd::nn {

enum class Init : uint8_t { kZeros, kOnes, kNormal };

struct ParameterSpec {
  std::string name;  // global: the same on every rank and in every checkpoint, "blocks.3.attention.qkv.weight"
  std::vector<int64_t> sizes;
  bool decay = false;  // weight decay: matrices yes; norms, biases and positions no
  Init init = Init::kZeros;
  double standard_deviation = 0;  // of kNormal
  int64_t elements() const;
};

// A view of the group's flat weights and flat gradient; both hold memory only while the group is attached.
// Layers keep a pointer to it; the group owns it. Threads: one at a time.
class Parameter {
 public:
  const ParameterSpec& spec() const { return spec_; }
  int64_t offset() const { return offset_; }          // elements from the start of the flat tensor
  const at::Tensor& value() const { return value_; }  // spec().sizes; a leaf, which requires grad unless it is frozen
  const at::Tensor& gradient() const { return gradient_; }
  bool frozen() const { return !value_.requires_grad(); }  // not trained: it never has a gradient

  // The factor for what the gradient holds already: 0 at the first contribution since begin_gradient(), then 1. Whoever
  // takes it must write the whole gradient: gradient = beta * gradient + contribution.
  double take_beta();
  void add_gradient(const at::Tensor& contribution);  // by copy or addition, whichever take_beta() says

 private:
  friend class ParameterGroup;
  Parameter(ParameterSpec spec, int64_t offset, const at::Tensor& flat, const at::Tensor& flat_gradient, bool frozen);
  ParameterSpec spec_;
  int64_t offset_;
  at::Tensor value_;
  at::Tensor gradient_;
  bool written_ = false;
};

}  // namespace herd::nn
