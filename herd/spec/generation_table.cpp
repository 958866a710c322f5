#include "herd/spec/generation_table.h"

#include <utility>

#include "herd/spec/build_model_table.h"

namespace herd::spec {

ModelTable generation_table(const ModelTable& whole, ModelTable pass) {
  pass.groups = whole.groups;  // the whole table has positions for all of the context
  const double token_share = static_cast<double>(pass.tokens) / static_cast<double>(whole.tokens);
  for (size_t b = 0; b < pass.blocks.size(); ++b) {
    BlockShape& block = pass.blocks[b];
    block.forward = block.without_graph;
    block.forward.attention_flops = whole.blocks[b].without_graph.attention_flops * token_share;
    block.cache_bytes = whole.blocks[b].cache_bytes;
    // A block that multiplies by its weights reads all of them in each pass, and its backward reads them too. Others
    // look up rows, or add a bias.
    if (!block.backward_reads_weights) continue;
    for (const int group : block.groups)
      block.forward.memory_bytes += static_cast<double>(pass.group_elements(group) * size_of(pass.compute_dtype));
  }
  return pass;
}

ModelTable generation_table(const RunFile& run, int64_t sequences, int64_t tokens) {
  RunFile pass_run = run;
  pass_run.model.context = tokens;
  return generation_table(program_table(run, sequences), program_table(pass_run, sequences));
}

}  // namespace herd::spec
