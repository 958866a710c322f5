// Passes that continue texts: their golden text, what they hold, and that no broken one proves.
#include "herd/strategies/compile_generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "herd/program/generation_passes.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/spec/generation_table.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Caches;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;
using testing::HasSubstr;

constexpr int64_t kPrompt = 3;

// A GPT of two layers, or of their parts where ranks share them.
spec::RunFile generated(int tp, bool tied = true) {
  spec::RunFile run = generation_run(small_run(2, "none", 4, tied));
  run.mesh.tp = tp;
  return run;
}

std::vector<Program> passes(const spec::RunFile& run, int tp, Caches caches) {
  std::vector<Program> out;
  for (const GenerationPrograms& one : compile_generation(run, trainable_layout(run, tp), kPrompt))
    out.push_back(caches == Caches::kBegun ? one.prompt : one.token);
  return out;
}

program::Expectation expectation(const spec::RunFile& run, int tp, Caches caches) {
  const spec::ModelTable table = spec::generation_table(run, 1, caches == Caches::kBegun ? kPrompt : 1);
  return program::generation_expected(expectation_of(table, trainable_layout(run, tp)), table, caches);
}

TEST(CompileGeneration, RefusesABert_WhichHasNoNextToken) {
  spec::RunFile run;
  run.model.kind = "bert";
  EXPECT_ERROR(generation_run(run), Code::kBadConfig, "no next token", "fix: a gpt, llama or moe");
}

TEST(CompileGeneration, WritesTheGoldenText) {
  for (const int tp : {1, 2}) {
    const auto both = compile_generation(generated(tp), trainable_layout(generated(tp), tp), kPrompt);
    for (const auto& [name, pass] : {std::pair("prompt", both[0].prompt), std::pair("token", both[0].token)}) {
      const std::string text = to_text(pass);
      testing_support::expect_golden(
          std::string("tests/strategies/golden/generation_") + name + "_tp" + std::to_string(tp) + ".txt", text);
      EXPECT_EQ(program::parse_program(text), pass);
    }
  }
}

TEST(CompileGeneration, CountsTheCachesOfEachLayerWithAttention) {
  spec::RunFile run = generated(1);
  run.model.kv_heads = 1;
  const Program pass = passes(run, 1, Caches::kContinued)[0];
  for (const int block : {1, 2}) {
    const program::ValueInfo& info = pass.values.at(program::cache(block));
    EXPECT_EQ(info.bytes, 2 * 4 * 1 * 4 * 4);  // keys and values, context 4, one head, 4 wide, fp32
    EXPECT_TRUE(info.persistent);
  }
  EXPECT_FALSE(pass.values.contains(program::cache(0)));
  EXPECT_EQ(pass.values.at(program::logits(0)).bytes, 16 * 4);
  const program::Peak peak = in_order_peak(pass, program::Tier::kDevice);
  EXPECT_EQ(peak.by_kind.at(ValueKind::kCache), 2 * 128);
  EXPECT_EQ(peak_bound(pass, program::Tier::kDevice).bytes, peak.bytes);
}

TEST(CompileGeneration, HoldsNothingOfTraining) {
  for (const Caches caches : {Caches::kBegun, Caches::kContinued}) {
    const Program pass = passes(generated(1), 1, caches)[0];
    for (const auto& [value, info] : pass.values) {
      EXPECT_THAT((std::vector{ValueKind::kWeight, ValueKind::kActivation, ValueKind::kCache, ValueKind::kLogits}),
                  testing::Contains(value.kind))
          << value_name(pass.mesh, value);
    }
  }
}

// The first finding after a change of the op of `kind` and block 1, of every rank.
std::string broken(int tp, Caches caches, OpKind kind, const std::function<void(std::vector<Op>&, size_t)>& change) {
  const spec::RunFile run = generated(tp);
  std::vector<Program> mutants = passes(run, tp, caches);
  for (Program& mutant : mutants) {
    const auto at = std::find_if(mutant.ops.begin(), mutant.ops.end(), [&](const Op& op) {
      const bool keeps = std::ranges::any_of(op.writes, [](const Value& v) { return v.kind == ValueKind::kCache; });
      return op.kind == kind && (keeps || kind != OpKind::kForward);
    });
    EXPECT_NE(at, mutant.ops.end());
    change(mutant.ops, static_cast<size_t>(at - mutant.ops.begin()));
  }
  return first_finding(mutants, expectation(run, tp, caches));
}

void replace(std::vector<Value>& values, ValueKind kind, std::vector<Value> by) {
  std::erase_if(values, [&](const Value& value) { return value.kind == kind; });
  values.insert(values.end(), by.begin(), by.end());
}

TEST(CompileGeneration, MutantsOfCachesAreFound) {
  const Value own = program::cache(1), other = program::cache(2);
  for (const Caches caches : {Caches::kBegun, Caches::kContinued}) {
    const auto found = [&](OpKind kind, const std::function<void(std::vector<Op>&, size_t)>& change) {
      return broken(1, caches, kind, change);
    };
    const bool continues = caches == Caches::kContinued;
    // not read, or read by a pass that begins it
    EXPECT_THAT(
        found(OpKind::kForward,
              [&](auto& ops, size_t i) {
                replace(ops[i].reads, ValueKind::kCache, continues ? std::vector<Value>{} : std::vector{own});
              }),
        HasSubstr(continues ? "does not read what an op of its kind needs" : "reads cache1, which holds nothing"));
    // that of another block
    EXPECT_THAT(
        found(OpKind::kForward, [&](auto& ops, size_t i) { replace(ops[i].reads, ValueKind::kCache, {other}); }),
        HasSubstr(continues ? "does not read what an op of its kind needs" : "reads cache2, which holds nothing"));
    EXPECT_THAT(
        found(OpKind::kForward, [&](auto& ops, size_t i) { replace(ops[i].writes, ValueKind::kCache, {other}); }),
        HasSubstr("writes cache2, which is another block's"));
    // written twice: by one op, or by the pass over the block after it
    EXPECT_THAT(found(OpKind::kForward,
                      [&](auto& ops, size_t i) {
                        replace(ops[i].writes, ValueKind::kCache, {own, own});
                      }),
                HasSubstr("writes 2 caches, where its block has one"));
    EXPECT_THAT(found(OpKind::kForward,
                      [&](auto& ops, size_t i) {
                        for (Op& op : ops)
                          if (op.block == ops[i].block + 1 && op.kind == OpKind::kForward) op.writes.push_back(own);
                      }),
                HasSubstr("writes 2 caches"));
    // written by none, so that the next pass reads a stale version
    EXPECT_THAT(found(OpKind::kForward, [&](auto& ops, size_t i) { replace(ops[i].writes, ValueKind::kCache, {}); }),
                HasSubstr("writes 0 caches, where its block has one"));
    // released
    EXPECT_NE(found(OpKind::kRelease, [&](auto& ops, size_t i) { ops[i].writes.push_back(own); }), "");
    EXPECT_NE(
        found(OpKind::kLogits, [&](auto& ops, size_t) { ops.push_back({.kind = OpKind::kRelease, .writes = {own}}); }),
        "");
    EXPECT_NE(
        found(OpKind::kLogits,
              [&](auto& ops, size_t) { ops.push_back({.kind = OpKind::kRelease, .writes = {program::logits(0)}}); }),
        "");
    // logits of an activation before the last
    EXPECT_NE(
        found(OpKind::kLogits,
              [&](auto& ops, size_t i) { replace(ops[i].reads, ValueKind::kActivation, {program::activation(2, 0)}); }),
        "");
  }
}

// A pass that leaves a cache as it is makes the next one read a stale version; one that runs twice reads one too new.
TEST(CompileGeneration, AStaleCacheIsFound) {
  const spec::RunFile run = generated(1);
  std::vector<Program> twice = passes(run, 1, Caches::kContinued);
  std::vector<Op>& ops = twice[0].ops;
  const std::vector<Op> once = ops;
  for (Op op : once) {
    std::erase_if(op.writes, [](const Value& value) { return value == program::cache(1); });
    ops.push_back(op);
  }
  const program::Expectation expected = expectation(run, 1, Caches::kContinued);
  EXPECT_THAT(to_string(verify(twice, expected), twice),
              HasSubstr("reads cache1, which holds that of block 1 mb 0 of data rank 0, step 1\n"));
  std::vector<Program> stale = passes(run, 1, Caches::kContinued);
  for (Op& op : stale[0].ops) std::erase(op.writes, program::cache(1));
  const std::string text = to_string(verify(stale, expected), stale);
  EXPECT_THAT(text, HasSubstr("reads cache1, which holds that of block 1 mb 0 of data rank 0, step 0 (in the second"));
  EXPECT_THAT(text, HasSubstr("cache1 is at version 0 after 2 passes"));
}

TEST(CompileGeneration, NoOpCanBeLeftOutOrRunTwice) {
  for (const int tp : {1, 2}) {
    for (const Caches caches : {Caches::kBegun, Caches::kContinued}) {
      const spec::RunFile run = generated(tp);
      const std::vector<Program> whole = passes(run, tp, caches);
      const program::Expectation expected = expectation(run, tp, caches);
      ASSERT_EQ(first_finding(whole, expected), "");
      for (size_t i = 0; i < whole[0].ops.size(); ++i) {
        std::vector<Program> without = whole, twice = whole;
        for (Program& one : without) one.ops.erase(one.ops.begin() + static_cast<std::ptrdiff_t>(i));
        for (Program& one : twice)
          one.ops.insert(one.ops.begin() + static_cast<std::ptrdiff_t>(i), whole[static_cast<size_t>(one.rank)].ops[i]);
        const Op& op = whole[0].ops[i];
        EXPECT_NE(first_finding(without, expected), "") << "without " << describe(whole[0], op);
        if (op.kind == OpKind::kLogits) continue;  // which gives the same once more
        EXPECT_NE(first_finding(twice, expected), "") << "twice " << describe(whole[0], op);
      }
    }
  }
}

}  // namespace
}  // namespace herd::strategies
