#include "herd/spec/masked_tokens.h"
#include "herd/spec/table_builder_internal.h"

namespace herd::spec {

LayerStyle bert_style() { return {.causal = false, .norms_after = true}; }

// BERT embeds words, positions and the first of two segments, and normalises their sum. Its layers normalise after each
// sum. Its head predicts masked words: of their rows a dense layer, gelu, norm, the tied embedding and a bias.
// Source: Devlin et al. 2019, arXiv:1810.04805; without the next sentence, as Liu et al. 2019, arXiv:1907.11692.
ModelTable bert_table(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  TableBuilder table(run, micro_batch, kernels);
  const auto& m = run.model;
  const LayerStyle style = bert_style();
  const auto add = [&](BlockShape block, std::vector<std::string> parts, std::vector<int> groups) {
    block.parts = std::move(parts);
    table.add_block(std::move(block), std::move(groups));
  };
  const ParameterShape words{"wte.weight", {m.vocab, m.width}, 0};
  std::vector<ParameterShape> positions = {{"wpe.weight", {m.context, m.width}}, {"segments.weight", {2, m.width}}};
  table.add_norm(positions, "ln_embedding");
  const int wte = table.add_group("wte", {words});
  add(table.embedding(m.vocab + m.context + 2, true), {"embedding", "positions", "norm"},
      {wte, table.add_group("embedding", positions)});
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string name = "h." + std::to_string(layer);
    add(table.layer(name, style), {"attention", "add_1", "norm_1", "mlp", "add_2", "norm_2"},
        {table.add_group(name, table.layer_parameters(name + ".", style))});
  }
  std::vector<ParameterShape> head;
  table.add_linear(head, "masked.dense", m.width, m.width, -1, true);
  table.add_norm(head, "masked.ln");
  head.push_back({"masked.bias", {m.vocab}, 0});
  std::vector<int> groups = {table.add_group("head", head), wte};
  if (!m.tie_embeddings) groups[1] = table.add_group("masked.weight", {{"masked.weight", {m.vocab, m.width}, 0}});
  add(table.masked_head(micro_batch * masked_tokens(run)), {"masked_head"}, groups);
  ModelTable out = table.take();
  out.masked_tokens = masked_tokens(run);
  return out;
}

}  // namespace herd::spec
