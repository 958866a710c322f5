#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "herd/spec/table_builder_internal.h"

namespace herd::spec {

LayerStyle decoder_style(const RunFile::Model& model) {
  const bool gpt = model.kind == "gpt";
  return {.feed = gpt ? LayerStyle::Feed::kGelu : LayerStyle::Feed::kSwiGlu,
          .biases = gpt,
          .qkv_bias = model.has_qkv_bias(),
          .qk_norm = model.has_qk_norm()};
}

namespace {

using Parts = std::vector<std::string>;

bool adds_to_residual(const Parts& parts) { return parts.back().starts_with("add"); }

// Returns the parts of a layer (nn/transformer_block.h), by the blocks that run them. Ranks of a tensor axis exchange
// something at each part, those that share tokens before and after attention, those that share experts before and after
// these. The latter have each part as a block of its own, as ranks of a tensor axis have.
std::vector<Parts> blocks_of_layer(const RunFile& run, Join join) {
  const bool shares_tokens = run.mesh.cp > 1;
  Parts parts = {"norm_1", "attention", "add_1", "norm_2", run.model.is_moe() ? "experts" : "mlp", "add_2"};
  if (run.model.is_moe() && run.mesh.ep > 1)
    parts.insert(parts.begin() + 4, "route"), parts.insert(parts.begin() + 6, "combine");
  if (shares_tokens) parts.insert(parts.begin() + 1, "qkv"), parts.insert(parts.begin() + 3, "projection");
  std::vector<Parts> blocks;
  for (const std::string& part : parts) {
    const bool exchanges =
        run.mesh.tp > 1 || run.mesh.ep > 1 || (shares_tokens && (part == "attention" || part == "projection"));
    if (blocks.empty() || (join == Join::kBetweenRanks && exchanges)) blocks.emplace_back();
    blocks.back().push_back(part);
  }
  return blocks;
}

// Adds the sections of which each rank has its own part to `cut`, and those of which ranks have copies to `copied`.
void add_sections(const ParameterShape& parameter, std::vector<ParameterShape>& cut,
                  std::vector<ParameterShape>& copied) {
  if (ParameterGroupShape{"", {parameter}}.max_copies() == 1) return cut.push_back(parameter);
  int64_t first = 0;
  for (const CutSection& section : parameter.sections) {
    std::vector<ParameterShape>& out = section.copies == 1 ? cut : copied;
    if (out.empty() || out.back().name != parameter.name) {
      out.push_back(parameter);
      out.back().sections.clear();
      out.back().sections_begin = first;
    }
    out.back().sections.push_back(section);
    first += section.size;
  }
}

// Returns the block of these parts of a layer.
BlockShape layer_block(const TableBuilder& table, const RunFile& run, const std::string& layer, const Parts& parts) {
  const LayerStyle style = decoder_style(run.model);
  const std::string &first = parts.front(), name = layer + "." + first;
  if (first == "norm_1" && adds_to_residual(parts)) return table.layer(layer, style);
  const bool is_joined = parts.size() > 1;
  if (parts.back() == "qkv") return table.projection(layer + ".qkv", style, is_joined);
  if (first == "projection") return table.output(is_joined ? layer + ".output" : name, style, is_joined);
  if (first == "attention" && run.mesh.cp == 1) return table.cut_attention(name, style);
  if (first == "attention")
    return run.strategy.context == "ring" ? table.ring_attention(name, style) : table.head_attention(name, style);
  if (first == "mlp") return table.cut_feed(name, style);
  if (first == "route") return table.route(name, style);
  if (first == "experts") return run.mesh.ep > 1 ? table.own_experts(name, style) : table.experts_of_rows(name, style);
  if (first == "combine") return table.combine(name);
  return first.starts_with("norm") ? table.norm(name, true) : table.add(name);
}

}  // namespace

// gpt has learned positions, biases and gelu. llama has rotated queries and keys, a gated feed-forward layer and no
// biases but those of queries, keys and values, where asked for; so has moe, with a group of its own for the experts of
// each layer but the first ones without. The losses of its routers go from layer to layer, and to the head.
//   Where tensor parallelism cuts layers, each has a group of whole parameters, one of cut parameters, and one of keys
// and values that ranks have copies of; norms of heads, of which all ranks have copies, are a group of their own. The
// groups of positions and of the final norm are whole, those of tokens and head are cut.
ModelTable decoder_table(const RunFile& run, int64_t micro_batch, Kernels kernels, Join join) {
  TableBuilder table(run, micro_batch, kernels);
  const auto& m = run.model;
  RunFile dense_run = run;  // of the layers without experts
  if (m.is_moe()) dense_run.model.kind = "llama";
  const TableBuilder dense(dense_run, micro_batch, kernels);
  const int64_t dense_layers = m.is_moe() ? m.dense_layers : 0;
  const bool gpt = m.kind == "gpt", tp = run.mesh.tp > 1;
  const bool is_cut = join == Join::kBetweenRanks && tp;
  const bool splits_experts = join == Join::kBetweenRanks && run.mesh.ep > 1;
  int blocks = 0;  // that have been added: the number of the activation that the last one gives
  const auto add = [&](BlockShape block, Parts parts, int64_t layer, std::vector<int> groups, int in_program = 1) {
    block.parts = std::move(parts);
    block.layer = static_cast<int>(layer);
    block.num_program_blocks = join == Join::kLayer ? in_program : 1;
    table.add_block(std::move(block), std::move(groups));
    ++blocks;
  };

  const ParameterShape words{"wte.weight", {m.vocab, m.width}, 0}, head{"head.weight", {m.vocab, m.width}, 0};
  std::vector<ParameterShape> positions, final_norm;
  if (gpt) positions = {{"wpe.weight", {m.context, m.width}}};
  table.add_norm(final_norm, "ln_f");
  const bool joins_groups = !is_cut && !m.tie_embeddings;  // of words and positions, and of the final norm and the head
  if (joins_groups) positions.insert(positions.begin(), words), final_norm.push_back(head);
  std::vector<int> first;
  if (!joins_groups) first.push_back(table.add_group("wte", {words}));
  if (!positions.empty()) first.push_back(table.add_group(joins_groups ? "embedding" : "wpe", positions));
  if (is_cut) {
    add(table.cut_embedding(), {"embedding"}, 0, {first[0]});
    if (gpt) add(table.positions(), {"positions"}, 0, {first[1]});
  } else {
    add(table.embedding(m.vocab + (gpt ? m.context : 0), false),
        gpt ? Parts{"embedding", "positions"} : Parts{"embedding"}, 0, first, gpt && tp ? 2 : 1);
  }

  int sum = blocks;                // the number of the activation that holds the residual stream
  std::optional<TensorId> losses;  // of the routers so far
  for (int64_t l = 0; l < m.layers; ++l) {
    const std::string name = "h." + std::to_string(l);
    const bool has_experts = m.is_moe() && l >= dense_layers;
    const RunFile& of_layer = has_experts ? run : dense_run;
    const TableBuilder& shapes = has_experts ? table : dense;
    std::vector<ParameterShape> whole, cut, copied, head_norms;
    for (ParameterShape& parameter : shapes.layer_parameters(name + ".", decoder_style(m))) {
      if (!is_cut || parameter.cut_dim < 0)
        whole.push_back(std::move(parameter));
      else if (parameter.name.ends_with("_norm.weight"))
        head_norms.push_back(std::move(parameter));
      else
        add_sections(parameter, cut, copied);
    }
    std::map<std::string, std::vector<int>> groups;  // that parts read
    const int whole_group = table.add_group(name, std::move(whole));
    const int cut_group = is_cut ? table.add_group(name + ".tp", std::move(cut)) : whole_group;
    groups["norm_1"] = groups["norm_2"] = groups[splits_experts ? "route" : "experts"] = {whole_group};
    if (gpt) groups["add_1"] = groups["add_2"] = {whole_group};  // biases
    groups["qkv"] = groups["projection"] = groups["mlp"] = {cut_group};
    if (!copied.empty()) groups["qkv"].push_back(table.add_group(name + ".keys", std::move(copied)));
    if (!head_norms.empty()) groups["qkv"].push_back(table.add_group(name + ".head_norms", std::move(head_norms)));
    if (run.mesh.cp == 1) groups["attention"] = groups["qkv"];
    if (has_experts)
      groups["experts"].push_back(table.add_experts(name + ".experts", table.expert_parameters(name + ".")));
    const int program_blocks = static_cast<int>(blocks_of_layer(of_layer, Join::kBetweenRanks).size());
    for (const Parts& parts : blocks_of_layer(of_layer, join)) {
      BlockShape block = layer_block(shapes, of_layer, name, parts);
      std::set<int> read;
      for (const std::string& part : parts) read.insert(groups[part].begin(), groups[part].end());
      if (adds_to_residual(parts) && parts[0] != "norm_1") block.inputs = {{sum}, {blocks}};
      const bool routes = block.routing_bytes > 0;
      if (m.bias_balancing > 0 && routes) block.buffers = {{name + ".router.bias", {m.experts}}};
      if (m.has_router_losses() && routes) {
        if (losses && block.inputs.empty()) block.inputs = {TensorId(blocks)};
        if (losses) block.inputs.push_back(*losses);
        if (!splits_experts) block.outputs = table.with_router_losses();
        losses = TensorId{blocks + 1, static_cast<int>(block.outputs.size()) - 1};
      }
      if (parts.back() == "combine") {  // rows that have come back, their weights, and the output of shared experts
        block.inputs = {{blocks}, {blocks - 1, 1}};
        if (m.shared_experts > 0) block.inputs.push_back({blocks - 1, 2});
      }
      add(std::move(block), parts, l + 1, {read.begin(), read.end()}, program_blocks);
      if (adds_to_residual(parts)) sum = blocks;
    }
  }

  std::vector<int> last = {table.add_group(joins_groups ? "head" : "ln_f", final_norm)};
  if (is_cut) add(table.norm("norm_f", false), {"norm_f"}, m.layers + 1, last), last.clear();
  if (!joins_groups) last.push_back(m.tie_embeddings ? first[0] : table.add_group("head", {head}));
  BlockShape end = table.head(!is_cut);
  if (losses) end.inputs = {{blocks}, *losses};
  add(std::move(end), is_cut ? Parts{"head"} : Parts{"norm_f", "head"}, m.layers + 1, last, tp ? 3 : 1);
  return table.take();
}

}  // namespace herd::spec
