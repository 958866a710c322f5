#include "herd/spec/table_builder_internal.h"

namespace herd::spec {

namespace {
constexpr int kPartsOfLayer = 6;  // that split_decoder_table() makes
}  // namespace

LayerStyle decoder_style(const RunFile::Model& model) {
  const bool gpt = model.kind == "gpt";
  return {.feed = gpt ? LayerStyle::Feed::kGelu : LayerStyle::Feed::kSwiGlu, .biases = gpt};
}

// gpt has learned positions, biases and gelu. llama has rotated queries and keys, a gated feed-forward layer and no
// biases; so has moe, with a group of its own for the experts of each layer. The losses of its routers go from layer to
// layer, and to the head.
ModelTable decoder_table(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  TableBuilder table(run, micro_batch, kernels);
  const auto& m = run.model;
  const bool gpt = m.kind == "gpt";
  const auto in_parts = [&](BlockShape block, int parts) {  // as many as split_decoder_table() makes
    const bool is_layer = parts == kPartsOfLayer, shares_tokens = is_layer && run.mesh.cp > 1;
    if (run.mesh.tp > 1) block.num_program_blocks = parts + (shares_tokens ? 2 : 0);  // attention in three
    if (run.mesh.tp == 1 && shares_tokens) block.num_program_blocks = 3;
    return block;
  };
  const LayerStyle style = decoder_style(m);
  const ParameterShape wte{"wte.weight", {m.vocab, m.width}, 0}, wpe{"wpe.weight", {m.context, m.width}};
  const int64_t rows = m.vocab + (gpt ? m.context : 0);
  int tied = -1;
  if (m.tie_embeddings) {
    std::vector<int> groups = {tied = table.add_group("wte", {wte})};
    if (gpt) groups.push_back(table.add_group("wpe", {wpe}));
    table.add_block(in_parts(table.embedding(rows, false), gpt ? 2 : 1), groups);
  } else {
    std::vector<ParameterShape> parameters = {wte};
    if (gpt) parameters.push_back(wpe);
    table.add_block(in_parts(table.embedding(rows, false), gpt ? 2 : 1), {table.add_group("embedding", parameters)});
  }
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string name = "h." + std::to_string(layer);
    std::vector<int> groups = {table.add_group(name, table.layer_parameters(name + ".", style))};
    BlockShape block = in_parts(table.layer(name, style), kPartsOfLayer);
    if (m.is_moe()) groups.push_back(table.add_experts(name + ".experts", table.expert_parameters(name + ".")));
    if (m.is_moe() && m.bias_balancing > 0) block.buffers = {{name + ".router.bias", {m.experts}}};
    if (m.has_router_losses()) {
      block.outputs = table.with_router_losses();
      const int before = static_cast<int>(layer) + 1;
      if (layer > 0) block.inputs = {{before, 0}, {before, 1}};
    }
    table.add_block(std::move(block), std::move(groups));
  }
  std::vector<ParameterShape> last;
  table.add_norm(last, "ln_f");
  if (tied < 0) last.push_back({"head.weight", {m.vocab, m.width}, 0});
  const int last_group = table.add_group(tied < 0 ? "head" : "ln_f", last);
  BlockShape head = in_parts(table.head(0), 3);
  const int layers = static_cast<int>(m.layers);
  if (m.has_router_losses()) head.inputs = {{layers + 1, 0}, {layers + 1, 1}};
  table.add_block(std::move(head), tied < 0 ? std::vector<int>{last_group} : std::vector<int>{last_group, tied});
  return table.take();
}

}  // namespace herd::spec
