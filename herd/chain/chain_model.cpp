#include "herd/chain/chain_model.h"

#include <map>

#include "herd/bridge/tensor_buffer.h"
#include "herd/chain/own_block.h"

namespace herd {

ChainModel make_chain_model(const Chain& chain, const spec::ModelTable& table, const std::set<int>& own,
                            at::Device device) {
  ChainModel model;
  const auto& blocks = chain.blocks();
  const at::ScalarType dtype = scalar_type_of(table.compute_dtype);
  const int first = table.first_trained();
  model.groups.resize(table.groups.size());
  std::map<std::string, std::shared_ptr<OwnedModule>> modules;
  std::map<std::string, std::vector<spec::ParameterShape>> changing;  // buffers by the block that owns the module
  for (size_t b = 0; b < blocks.size(); ++b) changing[blocks[b].name] = table.blocks.at(b).buffers;
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    const Chain::Block& block = blocks[static_cast<size_t>(b)];
    const spec::BlockShape& shape = table.blocks.at(static_cast<size_t>(b));
    OwnBlockParts parts{
        .block = block, .groups = {}, .module = nullptr, .outputs = shape.outputs, .figures = chain.figures()};
    for (const int g : shape.groups) {
      auto& group = model.groups[static_cast<size_t>(g)];
      if (!group)
        group = make_group(chain.owner_of(block), table.groups[static_cast<size_t>(g)], dtype,
                           scalar_type_of(table.gradient_dtype), device);
      parts.groups.push_back(group);
    }
    for (const spec::TensorId input : shape.inputs) parts.differentiates.push_back(table.has_gradient(input, first));
    if (!block.module.empty() && own.contains(b)) {
      auto& module = modules[block.module];
      if (!module) {
        const Chain::Block& owner = chain.owner_of(block);
        module = std::make_shared<OwnedModule>(owner, make_module(owner, 0), parts.groups, dtype, device,
                                               changing[owner.name]);
      }
      parts.module = module;
    }
    model.blocks.push_back(make_own_block(std::move(parts), b + 1 == static_cast<int>(blocks.size())));
  }
  return model;
}

}  // namespace herd
