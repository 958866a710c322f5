// Runs the parts of a layer (layer_parts.h, context_parts.h) one after another as one block: in one pass, with one
// graph. Threads: one at a time.
#pragma once

#include "herd/nn/block.h"

namespace herd::nn {

// What the parts of a layer hand on to each other.
enum class LayerValue : uint8_t {
  kSum,     // the residual stream
  kBranch,  // what is made of it, and added to it in the end
  kLosses,  // those of routers
};
using LayerValues = std::vector<LayerValue>;

class JoinedBlock final : public Block {
 public:
  struct Part {
    std::shared_ptr<Block> block;
    LayerValues reads, writes;
  };
  // `takes` names the block's inputs, of which the last ones may be missing, and `gives` its outputs.
  JoinedBlock(std::string name, GroupList groups, LayerValues takes, std::vector<Part> parts, LayerValues gives);
  Tuple forward(const Tuple& x, const Context& context) override;  // holds what its parts give until it ends
  std::vector<Buffer> buffers() const override;

 private:
  LayerValues takes_;
  std::vector<Part> parts_;
  LayerValues gives_;
};

}  // namespace herd::nn
