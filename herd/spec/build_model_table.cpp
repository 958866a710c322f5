#include "herd/spec/build_model_table.h"

#include <numeric>
#include <string>

#include "herd/base/error.h"
#include "herd/spec/chain_table.h"
#include "herd/spec/frozen.h"
#include "herd/spec/table_builder_internal.h"

namespace herd::spec {
namespace {

void check_divides(const char* ranks_name, int64_t ranks, const char* name, int64_t size) {
  if (size % ranks == 0) return;
  throw Error(Code::kBadConfig, std::string(ranks_name) + " must divide " + name + ": " + std::to_string(size) + " % " +
                                    std::to_string(ranks) + " = " + std::to_string(size % ranks) +
                                    "\n  fix: " + ranks_name + " = " + std::to_string(std::gcd(size, ranks)));
}

ModelTable table_of_kind(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  const std::string& kind = run.model.kind;
  if (kind == "gpt" || kind == "llama" || kind == "moe") return decoder_table(run, micro_batch, kernels, Join::kLayer);
  if (kind == "bert") return bert_table(run, micro_batch, kernels);
  if (kind == "t5") return t5_table(run, micro_batch, kernels);
  if (kind == "chain")
    throw Error(Code::kBadConfig,
                "model.kind = \"chain\" is of a program that has the blocks, and this is another one\n"
                "  fix: herd run -- PROGRAM FILE.toml, or model.kind = \"gpt\"");
  throw Error(Code::kBadConfig, "model.kind = \"" + kind + "\" has no layer table\n  fix: model.kind = \"gpt\"");
}

void refuse_key_heads(const RunFile& run) {
  const int64_t tp = run.mesh.tp, keys = run.model.kv_heads, heads = run.model.heads;
  std::string fix;
  for (int64_t smaller_tp = tp - 1; smaller_tp >= 1 && fix.empty(); --smaller_tp) {
    if (heads % smaller_tp == 0 && (keys % smaller_tp == 0 || smaller_tp % keys == 0)) fix = std::to_string(smaller_tp);
  }
  throw Error(Code::kBadConfig, "mesh.tp must divide model.kv_heads or be a multiple of it: " + std::to_string(keys) +
                                    " % " + std::to_string(tp) + " = " + std::to_string(keys % tp) + ", " +
                                    std::to_string(tp) + " % " + std::to_string(keys) + " = " +
                                    std::to_string(tp % keys) + "\n  fix: mesh.tp = " + fix);
}

// Ranks that exchange tokens for heads have whole heads of both kinds, of those of their tensor rank.
void check_exchanged_heads(const RunFile& run) {
  if (exchanges_whole_heads(run)) return;
  RunFile fix = run;
  while (!exchanges_whole_heads(fix)) --fix.mesh.cp;
  const int64_t cp = run.mesh.cp, tp = run.mesh.tp, heads = run.model.heads / tp;
  const int64_t keys = std::max<int64_t>(1, run.model.kv_heads / tp);
  const bool queries = heads % cp != 0;
  const std::string of_rank = tp > 1 ? " / mesh.tp" : "";
  throw Error(Code::kBadConfig, "with strategy.context = \"all_to_all\" mesh.cp must divide model.heads" + of_rank +
                                    ", and divide model.kv_heads" + of_rank +
                                    " or be a multiple of it: " + std::to_string(queries ? heads : keys) + " % " +
                                    std::to_string(cp) + " = " + std::to_string((queries ? heads : keys) % cp) +
                                    "\n  fix: mesh.cp = " + std::to_string(fix.mesh.cp) +
                                    (tp > 1 ? ", or strategy.context = \"ring\"" : ""));
}

void refuse_empty_vocabulary(int64_t tp, int64_t vocab) {
  throw Error(Code::kBadConfig,
              "mesh.tp must not exceed model.vocab, of which each rank has a part: " + std::to_string(tp) + " > " +
                  std::to_string(vocab) + "\n  fix: mesh.tp = " + std::to_string(vocab) +
                  " or less, or model.vocab = " + std::to_string(tp) + " or more");
}

// Ranks of a tensor axis route the rows that each of them has.
void check_experts_of_rows(const RunFile& run) {
  if (run.mesh.tp > 1 && !run.strategy.sequence_parallel)
    throw Error(Code::kBadConfig, "model.kind = \"moe\" with mesh.tp = " + std::to_string(run.mesh.tp) +
                                      " runs experts on each rank's own rows, which strategy.sequence_parallel = false "
                                      "makes all rows\n  fix: strategy.sequence_parallel = true, or mesh.tp = 1");
}

void check_shares(const RunFile& run) {
  const auto& m = run.model;
  if (m.is_moe()) check_experts_of_rows(run);
  if (!m.is_moe() && run.mesh.ep > 1)
    throw Error(Code::kBadConfig, "model.kind = \"" + m.kind +
                                      "\" has no experts, which ranks of mesh.ep = " + std::to_string(run.mesh.ep) +
                                      " would hold\n  fix: mesh.ep = 1, or model.kind = \"moe\"");
  if (m.is_moe()) check_divides("mesh.ep", run.mesh.ep, "model.experts", m.experts);
  check_divides("mesh.tp", run.mesh.tp, "model.heads", m.heads);
  if (m.kv_heads > 0 && m.kv_heads % run.mesh.tp != 0 && run.mesh.tp % m.kv_heads != 0) refuse_key_heads(run);
  if (m.ffn > 0 && (!m.is_moe() || m.dense_layers > 0)) check_divides("mesh.tp", run.mesh.tp, "model.ffn", m.ffn);
  if (m.vocab < run.mesh.tp) refuse_empty_vocabulary(run.mesh.tp, m.vocab);
  if (run.mesh.cp > m.context)
    throw Error(Code::kBadConfig, "mesh.cp must not exceed model.context, of whose tokens each rank has a part: " +
                                      std::to_string(run.mesh.cp) + " > " + std::to_string(m.context) +
                                      "\n  fix: mesh.cp = " + std::to_string(m.context) + " or less");
}

}  // namespace

bool exchanges_whole_heads(const RunFile& run) {
  const int64_t cp = run.mesh.cp, heads = run.model.heads / run.mesh.tp;
  const int64_t keys = std::max<int64_t>(1, run.model.kv_heads / run.mesh.tp);
  return run.strategy.context != "all_to_all" || (heads % cp == 0 && (keys % cp == 0 || cp % keys == 0));
}

Kernels kernels_of(const RunFile& run) {
  return run.device.kind == "cuda" || run.device.kind == "extension" ? Kernels::kDevice : Kernels::kCpu;
}

ModelTable model_table(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  if (run.chain) return run.chain->at(micro_batch);
  check_shares(run);
  ModelTable table = table_of_kind(run, micro_batch, kernels);
  freeze(table, run.model.frozen);
  return table;
}

ModelTable program_table(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  const bool decoder = run.model.kind == "gpt" || run.model.kind == "llama" || run.model.is_moe();
  if ((run.mesh.tp == 1 && run.mesh.cp == 1 && run.mesh.ep == 1) || !decoder)
    return model_table(run, micro_batch, kernels);
  check_shares(run);
  check_exchanged_heads(run);
  ModelTable table = decoder_table(run, micro_batch, kernels, Join::kBetweenRanks);
  freeze(table, run.model.frozen);
  return table;
}

}  // namespace herd::spec
