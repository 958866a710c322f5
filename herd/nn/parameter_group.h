// Holds weights that are gathered, reduced and stepped together: one flat tensor, one flat gradient.
//
// Parameters lie in the flat tensor in the order of the specs, densely, with no padding. The number of elements is
// exactly the sum that spec::ModelTable states, and a shard is a plain range of elements. (Widths are multiples of 16
// in practice, so every matrix starts on a 64-byte line anyway.)
// A group read by two blocks (tied embeddings) is one shared_ptr that both list; their contributions to a gradient add.
//
// The runtime calls group.attach(weights) ... forward ... group.attach_gradient(g); group.begin_gradient(); ...
// backward, then reads g. run_backward and LossBlock::loss leave every gradient of the block's groups complete:
// parameters without a contribution are zeroed. A group never allocates memory.
// Threads: one at a time.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/bridge/attachable_storage.h"
#include "herd/nn/parameter.h"

namespace herd::nn {

struct GroupOptions {
  at::ScalarType dtype = at::kFloat;
  std::optional<at::ScalarType> gradient_dtype = {};  // unset: dtype
  at::Device device = at::kCPU;
  bool frozen = false;
  int place = 0;  // index of this rank's part among ranks that share the group's parameters; 0 where all have the same
  // Makes the initial weights from a seed: [elements], fp32, contiguous. Empty = those that each parameter's Init says.
  std::function<at::Tensor(uint64_t seed)> initial_weights = {};
};

class ParameterGroup {
 public:
  ParameterGroup(std::string name, std::vector<ParameterSpec> specs, const GroupOptions& options = {});
  ParameterGroup(const ParameterGroup&) = delete;
  ParameterGroup& operator=(const ParameterGroup&) = delete;

  const std::string& name() const { return name_; }
  int64_t elements() const { return elements_; }
  at::Device device() const { return weights_.flat().device(); }
  int place() const { return place_; }     // as GroupOptions::place
  bool frozen() const { return frozen_; }  // none of it is trained, so it has no gradient
  at::ScalarType dtype() const { return weights_.flat().scalar_type(); }
  at::ScalarType gradient_dtype() const { return gradient_.flat().scalar_type(); }
  std::deque<Parameter>& parameters() { return parameters_; }
  const std::deque<Parameter>& parameters() const { return parameters_; }

  Parameter& find(std::string_view parameter_name);  // throws kBug with what the group has

  // REQUIRES [elements()] elements, contiguous, of dtype() and gradient_dtype(). The group uses their bytes in place
  // and keeps them alive.
  void attach(const at::Tensor& flat_weights);
  void attach(void* flat_weights, std::shared_ptr<void> keep_alive);
  void detach();
  bool attached() const { return weights_.attached(); }
  const at::Tensor& weights() const { return weights_.flat(); }
  // Call it after writes that bypass torch, so that stale graphs throw.
  void mark_weights_written() { weights_.mark_written(); }

  void attach_gradient(const at::Tensor& flat_gradient);
  void attach_gradient(void* flat_gradient, std::shared_ptr<void> keep_alive);
  void detach_gradient();
  bool gradient_attached() const { return gradient_.attached(); }
  const at::Tensor& gradient() const { return gradient_.flat(); }
  void begin_gradient();   // voids the gradient: each parameter's next contribution overwrites it
  void finish_gradient();  // zeroes parameters without a contribution since begin_gradient()

  // Writes elements [begin, begin + out.numel()) of the flat initial weights. Seed, parameter name and index alone key
  // each value, so any partition gives the same. `out` is contiguous, of a type that initial_weights.h takes.
  void initialize(uint64_t seed, const at::Tensor& out, int64_t begin = 0) const;

 private:
  std::string name_;
  bool frozen_;
  int place_;
  std::function<at::Tensor(uint64_t seed)> initial_weights_;
  int64_t elements_ = 0;
  AttachableStorage weights_;
  AttachableStorage gradient_;
  std::deque<Parameter> parameters_;  // stable addresses: layers point into it
};

using GroupList = std::vector<std::shared_ptr<ParameterGroup>>;

// Returns the parameter of that name among several groups; throws kBug if none has it.
Parameter& find(const GroupList& groups, std::string_view parameter_name);

}  // namespace herd::nn
