// Describes one named weight (ParameterSpec), and gives its place in a group's flat tensors (Parameter).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace herd::nn {

enum class Init : uint8_t { kZeros, kOnes, kNormal };

struct Span {
  int64_t begin = 0, end = 0;  // [begin, end)
};

struct ParameterSpec {
  std::string name;            // global name, the same on every rank and in every checkpoint: "h.3.attn.qkv.weight"
  std::vector<int64_t> sizes;  // sizes of the part that this rank holds
  bool decay = false;          // weight decay: true for matrices; false for norms, biases and positions
  Init init = Init::kZeros;
  double standard_deviation = 0;  // of kNormal
  int cut_dim = -1;               // dimension that ranks share; -1 = this rank holds all
  // Indices of cut_dim, in the whole parameter, that this rank holds; several spans need cut_dim = 0.
  std::vector<Span> spans = {};
  std::vector<int64_t> whole_sizes = {};  // empty = sizes
  int64_t elements() const;
  const std::vector<int64_t>& sizes_of_whole() const { return whole_sizes.empty() ? sizes : whole_sizes; }
};

// Returns the part of a parameter with these spans of dimension `dim`.
ParameterSpec cut(ParameterSpec whole, int dim, std::vector<Span> spans);

// Calls visit() for runs of elements that lie together both on the rank and in the whole parameter. `local_begin` is a
// run's first element on the rank, `global_begin` that in the whole parameter. It visits all of [begin, end) of the
// rank's elements, in order.
void for_each_run(const ParameterSpec& spec, int64_t begin, int64_t end,
                  const std::function<void(int64_t local_begin, int64_t global_begin, int64_t count)>& visit);

// A view of the group's flat weights and flat gradient, which hold memory only while the group is attached. Layers keep
// a pointer to it; the group owns it. Threads: one at a time.
class Parameter {
 public:
  const ParameterSpec& spec() const { return spec_; }
  int64_t offset() const { return offset_; }  // elements from the start of the flat tensor
  // Has spec().sizes; it is a leaf, which requires grad unless it is frozen.
  const at::Tensor& value() const { return value_; }
  const at::Tensor& gradient() const { return gradient_; }
  // Makes a parameter of a torch module the value, in its place: it becomes a view of the flat tensor. REQUIRES
  // spec().sizes.
  void take_over(at::Tensor module_parameter);
  bool frozen() const { return !value_.requires_grad(); }  // is not trained: it never has a gradient

  // Returns the factor for what the gradient holds already: 0 at the first contribution since begin_gradient(), then 1.
  // The caller must write the whole gradient: gradient = beta * gradient + contribution.
  double take_beta();
  void add_gradient(const at::Tensor& contribution);  // copies or adds, as take_beta() says

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
