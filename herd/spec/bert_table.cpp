#include "herd/spec/table_builder_internal.h"

namespace herd::spec {

// BERT as it is pre-trained embeds words, positions and two segments. Its layers normalise after each sum. Its head
// predicts masked words (dense layer, norm, the tied embedding, a bias) and the next sentence (pooler, classifier).
// Source: Devlin et al. 2019, arXiv:1810.04805.
ModelTable bert_table(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  TableBuilder table(run, micro_batch, kernels);
  const auto& m = run.model;
  const LayerStyle style{.causal = false};
  const ParameterShape words{"wte.weight", {m.vocab, m.width}, 0};
  std::vector<ParameterShape> positions = {{"wpe.weight", {m.context, m.width}}, {"segments.weight", {2, m.width}}};
  table.add_norm(positions, "ln_embedding");
  const int wte = table.add_group("wte", {words});
  table.add_block(table.embedding(m.vocab + m.context + 2, true), {wte, table.add_group("embedding", positions)});
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string name = "h." + std::to_string(layer);
    table.add_block(table.layer(name, style), {table.add_group(name, table.layer_parameters(name + ".", style))});
  }
  std::vector<ParameterShape> head;
  table.add_linear(head, "masked.dense", m.width, m.width, -1, true);
  table.add_norm(head, "masked.ln");
  head.push_back({"masked.bias", {m.vocab}, 0});
  table.add_linear(head, "pooler", m.width, m.width, -1, true);
  table.add_linear(head, "next_sentence", 2, m.width, -1, true);
  std::vector<int> groups = {table.add_group("head", head), wte};
  if (!m.tie_embeddings) groups[1] = table.add_group("masked.weight", {{"masked.weight", {m.vocab, m.width}, 0}});
  table.add_block(table.head(1), groups);
  return table.take();
}

}  // namespace herd::spec
