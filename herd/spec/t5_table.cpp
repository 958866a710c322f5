#include "herd/spec/table_builder_internal.h"

namespace herd::spec {

// T5 has an encoder and a decoder of `layers` layers each, both over `context` tokens, with relu, rms norms and no
// biases. The first layer of a stack holds the stack's table of relative positions. Decoder layers read the activations
// and the encoder's output.
// Source: Raffel et al. 2020, arXiv:1910.10683, section 2.1.
ModelTable t5_table(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  TableBuilder table(run, micro_batch, kernels);
  const auto& m = run.model;
  const int words = table.add_group("wte", {{"wte.weight", {m.vocab, m.width}, 0}});
  table.add_block(table.embedding(m.vocab, false), {words});
  for (const bool decoder : {false, true}) {
    for (int64_t layer = 0; layer < m.layers; ++layer) {
      const LayerStyle style{.feed = LayerStyle::Feed::kRelu,
                             .biases = false,
                             .causal = decoder,
                             .memory = decoder,
                             .positions = layer == 0};
      const std::string name = (decoder ? "decoder." : "encoder.") + std::to_string(layer);
      std::vector<ParameterShape> parameters = table.layer_parameters(name + ".", style);
      if (layer + 1 == m.layers && !decoder) table.add_norm(parameters, "encoder.ln_f");
      table.add_block(table.layer(name, style), {table.add_group(name, parameters)});
    }
  }
  std::vector<ParameterShape> last;
  table.add_norm(last, "decoder.ln_f");
  if (!m.tie_embeddings) last.push_back({"head.weight", {m.vocab, m.width}, 0});
  const int last_group = table.add_group(m.tie_embeddings ? "decoder.ln_f" : "head", last);
  table.add_block(table.head(), m.tie_embeddings ? std::vector<int>{last_group, words} : std::vector<int>{last_group});
  return table.take();
}

}  // namespace herd::spec
