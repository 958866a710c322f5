#include "herd/strategies/compile_generation.h"

#include "herd/base/error.h"
#include "herd/program/build.h"
#include "herd/program/generation_passes.h"
#include "herd/spec/generation_table.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/tensor_parallel.h"

namespace herd::strategies {
namespace {

using program::Caches;
using program::Program;

// Returns the pass of every rank over `tokens` tokens. Throws kBug if the verifier refuses them.
std::vector<Program> proved_passes(const spec::RunFile& run, const spec::Layout& layout, int64_t tokens,
                                   Caches caches) {
  const spec::ModelTable table = spec::generation_table(run, 1, tokens);
  std::vector<Program> passes;
  for (int rank = 0; rank < layout.world_size; ++rank) {
    Program step = program::plain_step(run, table, layout, rank);
    if (table.is_split()) step = TensorParallel(layout.tensor_axis, table).rewrite(std::move(step));
    passes.push_back(program::generation_pass(step, table, caches));
  }
  const auto findings = verify(passes, program::generation_expected(expectation_of(table, layout), table, caches));
  if (findings.empty()) return passes;
  throw Error(Code::kBug,
              "a pass over " + std::to_string(tokens) + " tokens does not prove:\n" + to_string(findings, passes));
}

}  // namespace

spec::RunFile generation_run(const spec::RunFile& run) {
  if (run.model.is_bert()) {
    throw Error(Code::kBadConfig,
                "a bert predicts masked words out of those on both sides of them, and no next token\n"
                "  fix: a gpt, llama or moe; the weights of a bert fill masks in transformers, after "
                "herd checkpoint convert --to bert");
  }
  spec::RunFile out;
  out.model = run.model;
  out.model.dropout = 0;
  out.model.frozen = out.model.weights = "none";
  out.train.batch = out.train.micro_batch = 1;
  out.strategy.sequence_parallel = false;  // one sequence has too few rows to share
  return out;
}

std::vector<GenerationPrograms> compile_generation(const spec::RunFile& run, const spec::Layout& layout,
                                                   int64_t tokens) {
  std::vector<Program> prompts = proved_passes(run, layout, tokens, Caches::kBegun);
  std::vector<Program> token_passes = proved_passes(run, layout, 1, Caches::kContinued);
  std::vector<GenerationPrograms> out;
  for (size_t rank = 0; rank < prompts.size(); ++rank)
    out.push_back({std::move(prompts[rank]), std::move(token_passes[rank])});
  return out;
}

}  // namespace herd::strategies
