// Blocks that compute straight from weights in the host's memory, so that they wait for no copy (direct host access).
//   The device never holds the weights of these blocks: their passes read them over the link, once a pass, and of an
//   embedding only the rows of the tokens. A window's first forward and last backward have nothing to compute behind
//   which their copies could hide: with these blocks read directly, the others are fetched meanwhile.
//   It follows the rewrite of the window (weight_window.h). A group that another block reads, too, such as a tied
//   embedding, is fetched for that one.
// Source: MemFerry, for reading weights at both ends of the chain from the host.
// Threads: pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class DirectHost final : public Strategy {
 public:
  // `layers` has the layer of each block.
  DirectHost(std::set<int> blocks, std::vector<int> layers) : blocks_(std::move(blocks)), layers_(std::move(layers)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  const std::set<int> blocks_;
  const std::vector<int> layers_;
};

// Returns the blocks that strategy.direct_host names, by their own name or that of their layer; none for "none", and
// for "auto", which the planner resolves (planner/variants_that_fit.h). Throws kBadConfig for a pattern that names no
// block.
std::set<int> direct_blocks(const spec::RunFile& run, const spec::ModelTable& model);

Technique direct_host_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
