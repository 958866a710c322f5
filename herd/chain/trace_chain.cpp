#include "herd/chain/trace_chain.h"

#include <algorithm>
#include <exception>
#include <map>

#include "herd/base/error.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/chain/own_block.h"
#include "herd/chain/trace_block.h"

namespace herd {
namespace {

// Traces a chain with micro-batches of one size.
class Tracer {
 public:
  Tracer(const Chain& chain, const TraceOptions& options, Tensors batch, int64_t samples)
      : chain_(chain), options_(options) {
    const std::vector<std::string> names = chain.batch_names();
    for (size_t i = 0; i < names.size(); ++i) {
      table_.batch.push_back(shape_of(batch.at(i), names[i]));
      table_.batch.back().differentiable = false;
    }
    table_.compute_dtype = options.compute_dtype;
    table_.gradient_dtype = options.gradient_dtype;
    table_.micro_batch = table_.tokens = samples;
    std::vector<std::vector<spec::TensorId>> inputs;
    for (int b = 0; b < num_blocks(); ++b) inputs.push_back(chain.inputs_of(b));
    nn::Context context{.training = true};
    for (int64_t i = 0; i < samples; ++i) context.samples.push_back(i);
    blocks_ = std::make_unique<BlockTracer>(std::move(inputs), std::move(batch), std::move(context));
  }

  spec::ModelTable run() {
    for (int b = 0; b < num_blocks(); ++b) trace(b);
    return std::move(table_);
  }

 private:
  int num_blocks() const { return static_cast<int>(chain_.blocks().size()); }

  // Returns the indices of the groups of a block, which are made where the block owns its module.
  std::vector<int> groups_of(const Chain::Block& block) {
    if (block.module.empty()) return {};
    if (block.module == block.name) {
      const auto module = make_module(block, 0);
      for (spec::ParameterGroupShape& group : groups_of_module(block, *module, options_.frozen)) {
        groups_[block.name].push_back(static_cast<int>(table_.groups.size()));
        table_.groups.push_back(std::move(group));
      }
    }
    return groups_[block.module];
  }

  void trace(int b) {
    const Chain::Block& block = chain_.blocks()[static_cast<size_t>(b)];
    spec::BlockShape& shape = table_.blocks.emplace_back();
    shape.name = block.name;
    shape.layer = b;
    shape.inputs = chain_.inputs_of(b);
    shape.groups = groups_of(block);
    OwnBlockParts parts{.block = block, .groups = {}, .module = nullptr};
    std::vector<at::Tensor> memory;
    for (const int g : shape.groups) {
      const spec::ParameterGroupShape& group = table_.groups[static_cast<size_t>(g)];
      parts.groups.push_back(make_group(chain_.owner_of(block), group, scalar_type_of(options_.compute_dtype),
                                        scalar_type_of(options_.gradient_dtype)));
      attach(*parts.groups.back(), memory);
    }
    if (!block.module.empty()) {
      const Chain::Block& owner = chain_.owner_of(block);
      owners_.try_emplace(owner.name, static_cast<size_t>(b));
      parts.module = std::make_shared<OwnedModule>(owner, make_module(owner, 0), parts.groups,
                                                   scalar_type_of(options_.compute_dtype));
    }
    for (const spec::TensorId input : shape.inputs) {
      if (!blocks_->has(input))
        throw Error(Code::kBadConfig, "block \"" + block.name + "\" reads tensor " + std::to_string(input.tensor) +
                                          " of block \"" +
                                          chain_.blocks()[static_cast<size_t>(input.producer) - 1].name +
                                          "\", which gives fewer\n  fix: a number that it has, counted from 0");
      parts.differentiates.push_back(blocks_->is_differentiable(input));
    }
    const bool is_loss = b + 1 == num_blocks();
    const auto own = make_own_block(parts, is_loss);
    const std::vector<at::Tensor> buffers = parts.module ? copies_of_buffers(*parts.module->get()) : Tensors{};
    if (is_loss)
      blocks_->trace_loss(static_cast<nn::LossBlock&>(*own), {}, b, shape);
    else
      blocks_->trace(*own, b, shape);
    if (parts.module) note_buffers(chain_.owner_of(block), *parts.module->get(), buffers);
  }

  static void attach(nn::ParameterGroup& group, std::vector<at::Tensor>& memory) {
    memory.push_back(at::empty({group.elements()}, at::TensorOptions().dtype(group.dtype())));
    group.initialize(0, memory.back());
    group.attach(memory.back());
    if (group.frozen()) return;
    memory.push_back(at::empty({group.elements()}, at::TensorOptions().dtype(group.gradient_dtype())));
    group.attach_gradient(memory.back());
  }

  static Tensors copies_of_buffers(const torch::nn::Module& module) {
    Tensors copies;
    for (const auto& item : module.named_buffers()) copies.push_back(item.value().clone());
    return copies;
  }
  // Notes the buffers of a module that have changed, at the block that owns it.
  void note_buffers(const Chain::Block& owner, const torch::nn::Module& module, const Tensors& before) {
    std::vector<spec::ParameterShape>& noted = table_.blocks[owners_.at(owner.name)].buffers;
    size_t next = 0;
    for (const auto& item : module.named_buffers()) {
      const at::Tensor& old = before[next++];
      const std::string name = owner.name + "." + item.key();
      if (item.value().equal(old) || std::ranges::find(noted, name, &spec::ParameterShape::name) != noted.end())
        continue;
      noted.push_back({name, item.value().sizes().vec()});
    }
  }

  const Chain& chain_;
  const TraceOptions& options_;
  spec::ModelTable table_;
  std::map<std::string, std::vector<int>> groups_;  // by the block that owns the module
  std::map<std::string, size_t> owners_;            // index of the block that owns each module
  std::unique_ptr<BlockTracer> blocks_;
};

// Finds which sizes count samples, by two traces.
void find_extents(const std::string& what, std::vector<spec::TensorShape>& small, int64_t small_samples,
                  std::vector<spec::TensorShape>& large, int64_t large_samples) {
  if (small.size() != large.size())
    throw Error(Code::kBadConfig, what + " gives " + std::to_string(small.size()) + " tensors for " +
                                      std::to_string(small_samples) + " samples, and " + std::to_string(large.size()) +
                                      " for " + std::to_string(large_samples) +
                                      "\n  fix: the same tensors for every batch");
  for (size_t i = 0; i < small.size(); ++i) {
    auto &a = small[i].extents, &b = large[i].extents;
    bool fits = a.size() == b.size() && small[i].dtype == large[i].dtype;
    for (size_t d = 0; fits && d < a.size(); ++d) {
      const int64_t s = a[d].factor, l = b[d].factor;
      if (s == l) continue;
      fits = s % small_samples == 0 && l % large_samples == 0 && s / small_samples == l / large_samples;
      a[d] = b[d] = {s / small_samples, true};
    }
    if (!fits)
      throw Error(Code::kBadConfig, "tensor " + std::to_string(i) + " of " + what +
                                        " has sizes that are neither fixed nor a multiple of the samples: they do not "
                                        "repeat from " +
                                        std::to_string(small_samples) + " to " + std::to_string(large_samples) +
                                        " samples\n  fix: shapes that depend on the number of samples alone");
  }
}

}  // namespace

spec::ChainTable trace_chain(const Chain& chain, const ExampleBatch& example, const TraceOptions& options) {
  if (chain.blocks().empty()) throw Error(Code::kBadConfig, "the chain has no blocks\n  fix: Chain::add()");
  DeviceMemory::install();
  const int64_t budget = DeviceMemory::budget();
  DeviceMemory::set_budget(0);
  int64_t large = std::max<int64_t>(2, options.samples), small = std::max<int64_t>(1, large / 2);
  const auto traced = [&](int64_t samples) { return Tracer(chain, options, example(samples), samples).run(); };
  spec::ModelTable tables[2];
  try {
    try {
      tables[0] = traced(small);
    } catch (const std::exception&) {
      if (small > 1) throw;
      const std::exception_ptr refusal = std::current_exception();
      small = 2, large = 4;  // a batch norm refuses one sample
      try {
        tables[0] = traced(small);
      } catch (const std::exception&) {
        std::rethrow_exception(refusal);
      }
    }
    tables[1] = traced(large);
  } catch (...) {
    DeviceMemory::set_budget(budget);
    throw;
  }
  DeviceMemory::set_budget(budget);
  DeviceMemory::reset_peak();
  find_extents("the batch", tables[0].batch, small, tables[1].batch, large);
  for (size_t b = 0; b < tables[0].blocks.size(); ++b)
    find_extents("block \"" + tables[0].blocks[b].name + "\"", tables[0].blocks[b].outputs, small,
                 tables[1].blocks[b].outputs, large);
  if (tables[0].first_trained() == static_cast<int>(tables[0].blocks.size()))
    throw Error(Code::kBadConfig,
                "no block of the chain has a parameter that is trained\n  fix: a module with "
                "parameters, or a shorter model.frozen");
  return {small, std::move(tables[0]), large, std::move(tables[1])};
}

}  // namespace herd
