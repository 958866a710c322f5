// Describes a model of one's own: a chain of named blocks, each a torch module, or a plain function, that reads tensors
// and gives tensors. herd trains it in every layout that it trains its own families in, but for tensor parallelism.
//
//   herd::Chain chain;
//   chain.add("embed", {"images"}, [] { return torch::nn::Linear(64, 32); })
//       .add("layer", {}, [] { return torch::nn::Linear(32, 32); })
//       .add("loss", {"layer", "embed", "labels"}, [] { return torch::nn::Linear(32, 10); },
//            [](torch::nn::LinearImpl& head, const herd::Tensors& x) {
//              auto sum = torch::nn::functional::cross_entropy(head.forward(x[0] + x[1]), x[2], ...kSum);
//              return herd::Tensors{sum, torch::tensor(x[2].size(0))};
//            });
//
// What a block reads:
//   "layer"    the first tensor that the earlier block "layer" gives; "layer:1" is its second
//   "images"   any other name is a tensor of the batch, whose first dimension counts samples
//   {}         the first tensor of the block before
// The last block gives two numbers, the sum of the samples' losses and how many count, so that the mean is right on any
// layout. It may give more, which report() names.
//   Losses of all layouts agree where modules draw nothing: a module's own dropout draws other numbers in another
// layout, and the same ones when a block is recomputed or a run resumed.
//   A factory may be called several times and on any rank. It must build the same module anew each time: the run ends
// with kBadConfig where it gives one twice, or another one. torch's generator is seeded by the name of the block, so
// that initial weights don't depend on the layout. Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "herd/spec/tensor_shape.h"

namespace herd {

using Tensors = std::vector<at::Tensor>;

class Chain {
 public:
  struct Block {
    std::string name;
    std::vector<std::string> reads;                            // names of tensors; empty = the block before
    std::string module;                                        // block whose module it uses; empty = it has none
    std::function<std::shared_ptr<torch::nn::Module>()> make;  // makes that module
    std::function<Tensors(torch::nn::Module*, const Tensors&)> run;
  };

  // Adds a block with a module. `make` returns a torch holder, such as torch::nn::Linear, or a shared_ptr to a module.
  // `run` takes the module and what the block reads, and returns a tensor or Tensors; without it the block calls the
  // module's forward(). Throws kBadConfig for a name that is taken, is empty or holds ':'.
  template <class Make, class Run>
  Chain& add(const std::string& name, std::vector<std::string> reads, Make make, Run run) {
    using Module = typename PointerOf<std::invoke_result_t<Make>>::element_type;
    return append({name, std::move(reads), name, [make] { return pointer_to(make()); },
                   [run](torch::nn::Module* module, const Tensors& x) {
                     return as_tensors(run(dynamic_cast<Module&>(*module), x));
                   }});
  }
  template <class Make>
  Chain& add(const std::string& name, std::vector<std::string> reads, Make make) {
    using Module = typename PointerOf<std::invoke_result_t<Make>>::element_type;
    return add(name, std::move(reads), std::move(make),
               [](Module& module, const Tensors& x) { return call(module, x); });
  }
  // Adds a block without parameters; `run` takes what it reads.
  template <class Run>
  Chain& add_function(const std::string& name, std::vector<std::string> reads, Run run) {
    return append(
        {name, std::move(reads), "", {}, [run](torch::nn::Module*, const Tensors& x) { return as_tensors(run(x)); }});
  }
  // Adds a block that uses the module of an earlier block: its weights are shared. `run` takes that module.
  template <class Module, class Run>
  Chain& add_shared(const std::string& name, std::vector<std::string> reads, const std::string& owner, Run run) {
    return append({name, std::move(reads), owner, maker_of(owner),
                   [run, name, owner](torch::nn::Module* module, const Tensors& x) {
                     auto* own = dynamic_cast<Module*>(module);
                     if (own == nullptr) refuse_type(name, owner, typeid(Module).name(), *module);
                     return as_tensors(run(*own, x));
                   }});
  }

  // Names further sums that the last block gives after the count, such as how many answers are right. A validation
  // reports each of them divided by the count. Throws kBadConfig for a name that is empty or stands twice.
  Chain& report(std::vector<std::string> figures);

  const std::vector<Block>& blocks() const { return blocks_; }
  const std::vector<std::string>& figures() const { return figures_; }
  const Block& owner_of(const Block& block) const;  // returns the block that has the module; REQUIRES one with a module
  // Returns the names of the batch's tensors, in the order in which blocks first read them.
  std::vector<std::string> batch_names() const;
  // Returns the tensors that a block reads. A tensor of the batch is numbered by its place in batch_names(). Throws
  // kBadConfig for a first block that reads nothing, and for a tensor that a block reads twice.
  std::vector<spec::TensorId> inputs_of(int block) const;

 private:
  template <class T>
  struct PointerOf {
    using element_type = typename T::ContainedType;  // of a torch::nn::ModuleHolder
  };
  template <class T>
  struct PointerOf<std::shared_ptr<T>> {
    using element_type = T;
  };
  template <class T>
  static std::shared_ptr<torch::nn::Module> pointer_to(const std::shared_ptr<T>& module) {
    return module;
  }
  template <class Holder>
  static std::shared_ptr<torch::nn::Module> pointer_to(const Holder& holder) {
    return holder.ptr();
  }
  static Tensors as_tensors(at::Tensor tensor) { return {std::move(tensor)}; }
  static Tensors as_tensors(Tensors tensors) { return tensors; }
  template <class Module>
  static auto call(Module& module, const Tensors& x) {
    if constexpr (requires { module.forward(x[0]); })
      return module.forward(x.at(0));
    else if constexpr (requires { module.forward(x[0], x[0]); })
      return module.forward(x.at(0), x.at(1));
    else
      return module.forward(x.at(0), x.at(1), x.at(2));
  }
  [[noreturn]] static void refuse_type(const std::string& block, const std::string& owner, const char* taken_as,
                                       const torch::nn::Module& module);
  Chain& append(Block block);
  std::function<std::shared_ptr<torch::nn::Module>()> maker_of(const std::string& owner) const;
  const Block* find(const std::string& name) const;

  std::vector<Block> blocks_;
  std::vector<std::string> figures_;
};

}  // namespace herd
