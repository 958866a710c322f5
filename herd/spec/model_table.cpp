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

int64_t ParameterShape::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

int64_t ParameterGroupShape::elements() const { return elements_of_rank(1); }

std::vector<IndexSpan> cut_spans(const ParameterShape& parameter, int tp, int place) {
  if (parameter.cut_dim < 0) return {};
  const int64_t whole = parameter.sizes[static_cast<size_t>(parameter.cut_dim)];
  const std::vector<int64_t> segments = parameter.segments.empty() ? std::vector<int64_t>{whole} : parameter.segments;
  std::vector<IndexSpan> out;
  int64_t begin = 0;
  for (const int64_t size : segments) {
    out.push_back({begin + size * place / tp, begin + size * (place + 1) / tp});
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
      sum += parameter.elements() / parameter.sizes[static_cast<size_t>(parameter.cut_dim)] * held;
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

void check_shares(const RunFile& run) {
  const auto& m = run.model;
  must_share("mesh.tp", run.mesh.tp, "model.heads", m.heads);
  if (m.kv_heads > 0) must_share("mesh.tp", run.mesh.tp, "model.kv_heads", m.kv_heads);
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

ModelTable program_table(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  const bool decoder = run.model.kind == "gpt" || run.model.kind == "llama";
  if (run.mesh.tp == 1 || !decoder) return model_table(run, micro_batch, kernels);
  check_shares(run);
  ModelTable table = split_decoder_table(run, micro_batch, kernels);
  freeze(table, run.model.frozen);
  return table;
}

}  // namespace herd::spec
