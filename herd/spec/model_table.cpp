#include "herd/spec/model_table.h"

#include <algorithm>
#include <numeric>

#include "herd/base/error.h"
#include "herd/spec/frozen.h"
#include "herd/spec/table_builder_internal.h"

namespace herd::spec {
namespace {

void must_share(const char* ranks_name, int64_t ranks, const char* name, int64_t size) {
  if (size % ranks == 0) return;
  throw Error(Code::kBadConfig, std::string(ranks_name) + " must divide " + name + ": " + std::to_string(size) + " % " +
                                    std::to_string(ranks) + " = " + std::to_string(size % ranks) +
                                    "\n  fix: " + ranks_name + " = " + std::to_string(std::gcd(size, ranks)));
}

ModelTable table_of_kind(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  const std::string& kind = run.model.kind;
  if (kind == "gpt" || kind == "llama") return decoder_table(run, micro_batch, kernels);
  if (kind == "bert") return bert_table(run, micro_batch, kernels);
  if (kind == "t5") return t5_table(run, micro_batch, kernels);
  throw Error(Code::kBadConfig, "model.kind = \"" + kind + "\" has no layer table\n  fix: model.kind = \"gpt\"");
}

}  // namespace

namespace {

int64_t elements_of_index(const ParameterShape& parameter) {  // of cut_dim
  int64_t product = 1;
  for (size_t d = 0; d < parameter.sizes.size(); ++d)
    product *= static_cast<int>(d) == parameter.cut_dim ? 1 : parameter.sizes[d];
  return product;
}

std::vector<Segment> segments_of(const ParameterShape& parameter) {
  if (!parameter.segments.empty()) return parameter.segments;
  return {{parameter.sizes[static_cast<size_t>(parameter.cut_dim)]}};
}

}  // namespace

int64_t ParameterShape::elements() const {
  if (cut_dim < 0) return elements_of_index(*this);
  int64_t held = 0;
  for (const Segment& segment : segments_of(*this)) held += segment.size;
  return elements_of_index(*this) * held;
}

int64_t ParameterGroupShape::elements() const {
  int64_t sum = 0;
  for (const ParameterShape& parameter : parameters) sum += parameter.elements();
  return sum;
}

int ParameterGroupShape::copies() const {
  int most = 1;
  for (const ParameterShape& parameter : parameters) {
    for (const Segment& segment : parameter.segments) most = std::max(most, segment.copies);
  }
  return most;
}

std::vector<IndexSpan> cut_spans(const ParameterShape& parameter, int tp, int place) {
  if (parameter.cut_dim < 0) return {};
  std::vector<IndexSpan> out;
  int64_t begin = parameter.first;
  for (const auto& [size, copies] : segments_of(parameter)) {
    const int parts = tp / copies, part = place / copies;
    out.push_back({begin + size * part / parts, begin + size * (part + 1) / parts});
    begin += size;
  }
  return out;
}

int64_t ParameterGroupShape::elements_of_rank(int tp) const {
  int64_t most = 0;
  for (int place = 0; place < tp; ++place) {
    int64_t sum = 0;
    for (const ParameterShape& parameter : parameters) {
      if (parameter.cut_dim < 0) {
        sum += parameter.elements();
        continue;
      }
      int64_t held = 0;
      for (const IndexSpan& span : cut_spans(parameter, tp, place)) held += span.end - span.begin;
      sum += elements_of_index(parameter) * held;
    }
    most = std::max(most, sum);
  }
  return most;
}

int64_t ModelTable::parameters() const {
  int64_t sum = 0;
  for (const auto& group : groups) sum += group.elements();
  return sum;
}

int64_t ModelTable::frozen_parameters() const {
  int64_t sum = 0;
  for (const auto& group : groups) sum += group.frozen ? group.elements() : 0;
  return sum;
}

int ModelTable::first_trained() const {
  const auto trains = [&](const BlockShape& block) {
    return std::any_of(block.groups.begin(), block.groups.end(),
                       [&](int group) { return !groups[static_cast<size_t>(group)].frozen; });
  };
  return static_cast<int>(std::find_if(blocks.begin(), blocks.end(), trains) - blocks.begin());
}

int64_t ModelTable::group_elements(int group) const { return groups[static_cast<size_t>(group)].elements_of_rank(tp); }

std::vector<int> ModelTable::inputs_of(int block) const {
  const auto& inputs = blocks[static_cast<size_t>(block)].inputs;
  return inputs.empty() ? std::vector<int>{block} : inputs;
}

bool ModelTable::is_split() const {
  return std::ranges::any_of(blocks, [](const BlockShape& block) { return block.split != Split::kNone; });
}

double ModelTable::flops() const {
  double sum = 0;
  for (const BlockShape& block : blocks) {
    for (const Cost& cost : {block.forward, block.backward}) sum += cost.matmul_flops + cost.attention_flops;
  }
  return sum;
}

int64_t loss_chunk_rows(int64_t vocab, int64_t rows) {
  const int64_t most = std::max<int64_t>(1, (int64_t{64} << 20) / (4 * vocab));
  const int64_t chunks = (rows + most - 1) / most;
  return (rows + chunks - 1) / chunks;
}

namespace {

void refuse_key_heads(const RunFile& run) {
  const int64_t tp = run.mesh.tp, keys = run.model.kv_heads, heads = run.model.heads;
  std::string fix;
  for (int64_t other = tp - 1; other >= 1 && fix.empty(); --other) {
    if (heads % other == 0 && (keys % other == 0 || other % keys == 0)) fix = std::to_string(other);
  }
  throw Error(Code::kBadConfig, "mesh.tp must divide model.kv_heads or be a multiple of it: " + std::to_string(keys) +
                                    " % " + std::to_string(tp) + " = " + std::to_string(keys % tp) + ", " +
                                    std::to_string(tp) + " % " + std::to_string(keys) + " = " +
                                    std::to_string(tp % keys) + "\n  fix: mesh.tp = " + fix);
}

void check_shares(const RunFile& run) {
  const auto& m = run.model;
  must_share("mesh.tp", run.mesh.tp, "model.heads", m.heads);
  if (m.kv_heads > 0 && m.kv_heads % run.mesh.tp != 0 && run.mesh.tp % m.kv_heads != 0) refuse_key_heads(run);
  if (m.ffn > 0) must_share("mesh.tp", run.mesh.tp, "model.ffn", m.ffn);
  must_share("mesh.cp", run.mesh.cp, "model.context", m.context);
}

}  // namespace

ModelTable model_table(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  check_shares(run);
  ModelTable table = table_of_kind(run, micro_batch, kernels);
  freeze(table, run.model.frozen);
  return table;
}

int key_copies(const RunFile& run) {
  const int64_t keys = run.model.kv_heads > 0 ? run.model.kv_heads : run.model.heads;
  return run.mesh.tp % keys == 0 ? static_cast<int>(run.mesh.tp / keys) : 1;
}

ModelTable program_table(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  const bool decoder = run.model.kind == "gpt" || run.model.kind == "llama";
  if (run.mesh.tp == 1 || !decoder) return model_table(run, micro_batch, kernels);
  check_shares(run);
  ModelTable table = split_decoder_table(run, micro_batch, kernels);
  freeze(table, run.model.frozen);
  return table;
}

}  // namespace herd::spec
