#include "herd/chain/trace_chain.h"

#include <c10/util/StringUtil.h>

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

constexpr int kMostTokenExponent = 2;  // of pairs of tokens, in one dimension

// Traces a chain with micro-batches of one size.
class Tracer {
 public:
  Tracer(const Chain& chain, const TraceOptions& options, Tensors batch, int64_t samples, int64_t tokens)
      : chain_(chain), options_(options) {
    const std::vector<std::string> names = chain.batch_names();
    for (size_t i = 0; i < names.size(); ++i) {
      table_.batch.push_back(shape_of(batch.at(i), names[i]));
      table_.batch.back().differentiable = false;
    }
    table_.compute_dtype = options.compute_dtype;
    table_.gradient_dtype = options.gradient_dtype;
    table_.micro_batch = samples;
    table_.tokens = samples * tokens;
    std::vector<std::vector<spec::TensorId>> inputs;
    for (int b = 0; b < num_blocks(); ++b) inputs.push_back(chain.inputs_of(b));
    nn::Context context{.training = true, .tokens = tokens};
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
    OwnBlockParts parts{.block = block, .groups = {}, .module = nullptr, .figures = chain_.figures()};
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

// Says what differs between two traces.
struct Difference {
  std::string unit;             // "samples", "tokens"
  std::string fix;              // of sizes that are no multiple of the unit
  int spec::Extent::*exponent;  // that of the unit
  int most;                     // the largest exponent that is looked for
  int64_t small, large;         // of the unit, in each trace
  int64_t samples = 1;          // of both traces, once it is known which sizes count samples
};

// Finds the power of the unit in the factor of a size, which is `small` in the smaller trace, and divides by it.
// Returns false where there is none.
bool find_exponent(const Difference& between, int64_t small, spec::Extent& large) {
  const int64_t others = spec::Extent{1, large.samples}.size(between.samples, 1);
  for (int exponent = 0; exponent <= between.most; ++exponent) {
    spec::Extent unit{1};  // to this power, and of the other unit to none
    unit.*between.exponent = exponent;
    const int64_t low = unit.size(between.small, between.small), high = unit.size(between.large, between.large);
    if (large.factor % high != 0 || small != large.factor / high * low * others) continue;
    large.factor /= high;
    large.*between.exponent = exponent;
    return true;
  }
  return false;
}

// Finds which sizes of what a block or the batch gives are multiples of powers of the unit.
void find_extents(const std::string& what, const Difference& between, const std::vector<spec::TensorShape>& small,
                  std::vector<spec::TensorShape>& large) {
  const auto of = [&](int64_t count) { return std::to_string(count) + " " + between.unit; };
  if (small.size() != large.size())
    throw Error(Code::kBadConfig, what + " gives " + std::to_string(small.size()) + " tensors for " +
                                      of(between.small) + ", and " + std::to_string(large.size()) + " for " +
                                      of(between.large) + "\n  fix: the same tensors for every batch");
  for (size_t i = 0; i < small.size(); ++i) {
    const std::vector<spec::Extent>& seen = small[i].extents;
    std::vector<spec::Extent> extents = large[i].extents;
    bool fits = seen.size() == extents.size() && small[i].dtype == large[i].dtype;
    for (size_t d = 0; fits && d < seen.size(); ++d) fits = find_exponent(between, seen[d].factor, extents[d]);
    if (!fits)
      throw Error(Code::kBadConfig,
                  "tensor " + (small[i].name.empty() ? std::to_string(i) : "\"" + small[i].name + "\"") + " of " +
                      what + " has sizes that are neither fixed nor a multiple of the " + between.unit +
                      ": they do not repeat from " + c10::str(at::IntArrayRef(small[i].sizes(1, 1))) + " for " +
                      of(between.small) + " to " + c10::str(at::IntArrayRef(large[i].sizes(between.samples, 1))) +
                      " for " + of(between.large) + "\n  fix: " + between.fix);
    large[i].extents = extents;
  }
}

// Calls find_extents() for the batch and for each block.
void find_all_extents(const Difference& between, const spec::ModelTable& small, spec::ModelTable& large) {
  find_extents("the batch", between, small.batch, large.batch);
  for (size_t b = 0; b < small.blocks.size(); ++b)
    find_extents("block \"" + small.blocks[b].name + "\"", between, small.blocks[b].outputs, large.blocks[b].outputs);
}

}  // namespace

spec::ChainTable trace_chain(const Chain& chain, const ExampleBatch& example, const TraceOptions& options) {
  if (chain.blocks().empty()) throw Error(Code::kBadConfig, "the chain has no blocks\n  fix: Chain::add()");
  DeviceMemory::install();
  const int64_t budget = DeviceMemory::budget();
  DeviceMemory::set_budget(0);
  int64_t large = std::max<int64_t>(2, options.samples), small = std::max<int64_t>(1, large / 2);
  const int64_t most = std::max<int64_t>(1, options.most_tokens), fewer = std::max<int64_t>(1, most / 2);
  const auto traced = [&](int64_t samples, int64_t tokens) {
    return Tracer(chain, options, example(samples, tokens), samples, tokens).run();
  };
  spec::ModelTable tables[2], shorter;
  try {
    try {
      tables[0] = traced(small, most);
    } catch (const std::exception&) {
      if (small > 1) throw;
      const std::exception_ptr refusal = std::current_exception();
      small = 2, large = 4;  // a batch norm refuses one sample
      try {
        tables[0] = traced(small, most);
      } catch (const std::exception&) {
        std::rethrow_exception(refusal);
      }
    }
    tables[1] = traced(large, most);
    if (fewer < most) shorter = traced(large, fewer);
  } catch (...) {
    DeviceMemory::set_budget(budget);
    throw;
  }
  DeviceMemory::set_budget(budget);
  DeviceMemory::reset_peak();
  find_all_extents(
      {"samples", "shapes that depend on the number of samples alone, or on the tokens that ChainData::tokens counts",
       &spec::Extent::samples, 1, small, large},
      tables[0], tables[1]);
  if (fewer < most) {
    find_all_extents({"tokens",
                      "sizes that are a multiple of the tokens; what a block adds to them, such as a token that begins "
                      "a text, the data can give",
                      &spec::Extent::tokens, kMostTokenExponent, fewer, most, large},
                     shorter, tables[1]);
  }
  if (tables[0].first_trained() == static_cast<int>(tables[0].blocks.size()))
    throw Error(Code::kBadConfig,
                "no block of the chain has a parameter that is trained\n  fix: a module with "
                "parameters, or a shorter model.frozen");
  return {small, std::move(tables[0]), large, std::move(tables[1]), most};
}

}  // namespace herd
