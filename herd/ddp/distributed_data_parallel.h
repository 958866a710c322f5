// Trains any torch::nn::Module data parallel: every rank holds the module, takes its own part of the batch, and gets
// the gradient averaged over ranks.
//
//   auto net = std::make_shared<Net>();                         // or a TORCH_MODULE holder
//   herd::DistributedDataParallel ddp(net, comm);               // rank 0's weights go to all
//   torch::optim::AdamW optimizer(ddp.parameters());
//   ...
//   ddp(x).sub(y).square().mean().backward();                   // gradients are averaged when this returns
//   optimizer.step(); optimizer.zero_grad();
//
// At the start ranks compare the options, and names, shapes and dtypes; kBadConfig names a rank that differs.
// Parameters shared by two modules count once. Gradients lie in the reducer's buckets (gradient_reducer.h). no_sync()
// accumulates gradients, DataParallelOptions::codec sends them in a shorter form, set_weight() serves batches of
// different sizes, without_batch() a rank that is out of batches. Every rank runs the same number of forwards in
// training, those under no_sync() aside, before a backward that reduces. A parameter that is converted, unfrozen, added
// or replaced later would not be averaged: the next forward throws kBadConfig with its name. Threads: as
// GradientReducer.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/ddp/gradient_reducer.h"

namespace herd::ddp {

enum class ModuleBuffers : uint8_t {
  kFromRankZero,  // broadcast before each forward in training: running statistics are rank 0's
  kLocal,
};

struct DataParallelOptions : ReducerOptions {
  ModuleBuffers buffers = ModuleBuffers::kFromRankZero;
};

// Holds what does not depend on the module's type.
class DataParallelModule {
 public:
  DataParallelModule(std::shared_ptr<torch::nn::Module> module, Communicator& comm, const DataParallelOptions& options);
  // Checks that the reducer is ready and the parameters are those that it averages; in training it broadcasts rank 0's
  // buffers, for kFromRankZero. Collective.
  void begin_forward();
  void join_without_batch();
  GradientReducer& reducer() { return reducer_; }

 private:
  // Holds a parameter as it was when the buckets were made.
  struct Wrapped {
    std::string name;
    at::Tensor tensor;
    at::ScalarType dtype;
    at::Device device;
    std::vector<int64_t> sizes;
    bool requires_grad;
  };
  std::string change_of(const Wrapped& before, const at::Tensor& now) const;  // "" where there is none
  void check_parameters() const;

  std::shared_ptr<torch::nn::Module> module_;
  Communicator comm_;
  DataParallelOptions options_;
  std::vector<Wrapped> wrapped_;
  GradientReducer reducer_;
};

// Turns reducing off while it lives.
class NoSync {
 public:
  explicit NoSync(GradientReducer& reducer) : reducer_(reducer), before_(reducer.reducing()) {
    reducer_.set_reducing(false);
  }
  ~NoSync() { reducer_.set_reducing(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  GradientReducer& reducer_;
  bool before_;
};

template <typename Module>
class DistributedDataParallel {
  static constexpr bool kPlain = std::is_base_of_v<torch::nn::Module, Module>;  // else a TORCH_MODULE holder

 public:
  using Pointer = std::conditional_t<kPlain, std::shared_ptr<Module>, Module>;

  // Collective. Shares the group of `comm`, which may be moved or end before this.
  DistributedDataParallel(Pointer module, Communicator& comm, const DataParallelOptions& options = {})
      : module_(std::move(module)), base_(shared(module_), comm, options) {}

  template <typename... Args>
  auto operator()(Args&&... args) {
    base_.begin_forward();
    return module_->forward(std::forward<Args>(args)...);
  }
  const Pointer& module() const { return module_; }
  auto* operator->() const { return shared_module().get(); }  // its forward() reduces nothing
  std::vector<at::Tensor> parameters() const { return shared_module()->parameters(); }

  // While the returned guard lives, backward adds to the local gradients; the first backward after it averages the sum.
  [[nodiscard]] NoSync no_sync() { return NoSync(base_.reducer()); }
  // Both act on the next reduction alone, as GradientReducer says. set_weight() is collective, before backward.
  void set_weight(double weight) { base_.reducer().set_weight(weight); }
  void without_batch() { base_.join_without_batch(); }

 private:
  static auto shared(const Pointer& module) {
    if constexpr (kPlain)
      return module;
    else
      return module.ptr();
  }
  auto shared_module() const { return shared(module_); }

  Pointer module_;
  DataParallelModule base_;
};

template <typename Module>
DistributedDataParallel(std::shared_ptr<Module>, Communicator&, const DataParallelOptions& = {})
    -> DistributedDataParallel<Module>;
template <typename Holder>  // of TORCH_MODULE
requires requires(const Holder& holder) { holder.ptr(); }
DistributedDataParallel(Holder, Communicator&, const DataParallelOptions& = {})->DistributedDataParallel<Holder>;

}  // namespace herd::ddp

namespace herd {
using ddp::DataParallelOptions, ddp::DistributedDataParallel, ddp::ModuleBuffers, ddp::UnusedParameters;
}  // namespace herd
