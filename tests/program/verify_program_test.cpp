#include "herd/program/verify_program.h"
#include "herd/program/collective_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>

#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "tests/program/combinations.h"
#include "tests/program/reference_interpreter.h"
#include "tests/support/sample.h"

namespace herd::program::testing {
namespace {

bool full() { return std::getenv("HERD_FULL_TESTS") != nullptr; }

std::vector<Combination> combinations() {
  std::vector<Combination> all;
  for (const int micro_batches : {1, 2, 5}) {
    for (const int dp : {1, 2, 3}) {
      for (const int pp : {1, 2, 4}) {
        for (const int zero : {0, 1, 2, 3}) {
          if (dp == 1 && zero > 0) continue;
          for (const int recompute : {0, 1 + micro_batches % 2}) {
            for (const bool offload : {false, true}) {
              all.push_back({.layers = 3,
                             .micro_batches = micro_batches,
                             .dp = dp,
                             .pp = pp,
                             .zero = zero,
                             .tied = dp != 2,
                             .recompute = recompute,
                             .offload = offload,
                             .bucket = zero == 1 ? 4000 : 1,
                             .order = zero == 2 ? "gpipe" : "1f1b"});
            }
          }
        }
      }
    }
  }
  return all;
}

TEST(Verify, ProvesEveryCombination_AndAnyInterleavingGivesTheSameNumbers) {
  const auto all = combinations();
  for (size_t i = 0; i < all.size(); i += static_cast<size_t>(one_in(1, 7))) {
    const Combination& c = all[i];
    const Compiled compiled = compile(c);
    EXPECT_EQ(to_string(verify(compiled.programs, compiled.expected), compiled.programs), "") << c.text();
    if (!full() && i % 5 != 0) continue;
    const Result expected = interpret(compiled.programs, compiled.expected.proof.shard_axis, 3, 0);
    EXPECT_EQ(expected.failure, "") << c.text();
    for (uint64_t seed = 1; seed <= (full() ? 10 : 2); ++seed) {
      EXPECT_EQ(interpret(compiled.programs, compiled.expected.proof.shard_axis, 3, seed), expected) << c.text();
    }
    EXPECT_EQ(parse_program(to_text(compiled.programs.back())), compiled.programs.back());
  }
}

TEST(Verify, TheNumbersAreThoseOfOneRank_WhateverTheCombination) {
  // The same weights from every layout of the same samples: dp 1 and 2 work on other samples, so compare within dp.
  for (const int dp : {1, 2}) {
    Result plain;
    for (const Combination& c : combinations()) {
      if (c.dp != dp || c.micro_batches != 2 || c.pp != 1 || c.zero == 3) continue;
      Combination untied = c;
      untied.tied = false;
      const Compiled compiled = compile(untied);
      const Result result = interpret(compiled.programs, compiled.expected.proof.shard_axis, 3, 0);
      if (plain.persistent.empty()) plain = result;
      for (const auto& [value, numbers] : plain.persistent[0]) {
        if (value.kind != ValueKind::kWeight) continue;
        EXPECT_EQ(result.persistent[0].at(value), numbers)
            << untied.text() << " " << value_name(compiled.programs[0].mesh, value);
      }
    }
  }
}

struct Mutation {
  std::vector<Program> programs;
  std::string text;
};

Mutation mutate(const Compiled& compiled, std::mt19937_64& random) {
  Mutation out{compiled.programs, ""};
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const size_t r = below(out.programs.size());
  Program& step = out.programs[r];
  const size_t i = below(step.ops.size());
  const std::string of = "rank " + std::to_string(r) + " op " + std::to_string(i) + " " + describe(step, step.ops[i]);
  switch (below(5)) {
    case 0:
      step.ops.erase(step.ops.begin() + static_cast<long>(i));
      out.text = "drop " + of;
      break;
    case 1: {
      const Op copy = step.ops[i];
      step.ops.insert(step.ops.begin() + static_cast<long>(i), copy);
      out.text = "duplicate " + of;
      break;
    }
    case 2: {
      const size_t j = below(2) == 0 ? std::min(i + 1, step.ops.size() - 1) : below(step.ops.size());
      std::swap(step.ops[i], step.ops[j]);
      out.text = "swap " + of + " with op " + std::to_string(j);
      break;
    }
    case 3: {  // another value of the same kind
      auto& side = below(2) == 0 && !step.ops[i].reads.empty() ? step.ops[i].reads : step.ops[i].writes;
      if (side.empty()) break;
      Value& value = side[below(side.size())];
      std::vector<Value> others;
      for (const auto& [other, info] : step.values) {
        if (other.kind == value.kind && other != value) others.push_back(other);
      }
      if (others.empty()) break;
      const Value other = others[below(others.size())];
      out.text = "retarget " + value_name(step.mesh, value) + " of " + of + " to " + value_name(step.mesh, other);
      value = other;
      break;
    }
    default: {
      Op& op = step.ops[i];
      if (op.block < 0 || op.kind == OpKind::kSend || op.kind == OpKind::kReceive || op.kind == OpKind::kLoad) break;
      op.block = (op.block + 1) % step.num_blocks;
      out.text = "give the next block to " + of;
    }
  }
  return out;
}

TEST(Verify, CatchesEveryMutantThatChangesAnyResult) {
  std::mt19937_64 random(1);
  int caught = 0, harmless = 0;
  const auto all = combinations();
  for (size_t i = 0; i < all.size(); i += static_cast<size_t>(one_in(4, 13))) {
    if (all[i].dp * all[i].pp > 6 && !full()) continue;
    const Compiled compiled = compile(all[i]);
    const Result expected = interpret(compiled.programs, compiled.expected.proof.shard_axis, 3, 0);
    for (int k = 0; k < (full() ? 40 : 8); ++k) {
      const Mutation mutation = mutate(compiled, random);
      if (mutation.text.empty()) continue;
      if (!verify(mutation.programs, compiled.expected).empty()) {
        ++caught;
        continue;
      }
      ++harmless;
      for (uint64_t seed = 1; seed <= (full() ? 20 : 5); ++seed) {
        const Result result = interpret(mutation.programs, compiled.expected.proof.shard_axis, 3, seed);
        ASSERT_EQ(result.failure, "") << all[i].text() << ": " << mutation.text;
        ASSERT_EQ(result, expected) << all[i].text() << ": " << mutation.text;
      }
    }
  }
  EXPECT_GT(caught, 4 * harmless) << "caught " << caught << ", harmless " << harmless;
  RecordProperty("caught", caught);
  RecordProperty("harmless", harmless);
}

std::string first_finding(std::vector<Program> programs, const Expectation& expected) {
  const auto findings = verify(programs, expected);
  return findings.empty() ? "" : to_string({findings[0]}, programs);
}

// The programs with values called otherwise, everywhere.
std::vector<Program> renamed(std::vector<Program> programs, const std::function<Value(Value)>& name) {
  for (Program& program : programs) {
    std::map<Value, ValueInfo> values;
    for (const auto& [value, info] : program.values) values[name(value)] = info;
    program.values = std::move(values);
    for (Op& op : program.ops) {
      for (auto* side : {&op.reads, &op.writes}) std::transform(side->begin(), side->end(), side->begin(), name);
    }
  }
  return programs;
}

TEST(Verify, FindsNamesThatDoNotSayHowValuesLie) {
  using ::testing::HasSubstr;
  const Compiled compiled = compile({.dp = 2, .pp = 2, .zero = 2});
  const Mesh& mesh = compiled.expected.mesh;
  const int dp = mesh.dividing(Divided::kSamples), pp = mesh.dividing(Divided::kStages);
  const auto along = [&](const std::function<Placement(Placement)>& change, ValueKind kind) {
    return first_finding(renamed(compiled.programs,
                                 [&](Value value) {
                                   if (value.kind == kind) value.placement = change(value.placement);
                                   return value;
                                 }),
                         compiled.expected);
  };
  const auto other_axis = [&](Placement p) { return p.is_shard(dp) ? kWhole.shard_on(pp) : p; };
  EXPECT_THAT(along(other_axis, ValueKind::kState), HasSubstr("keeps s0.shard(pp), where shards are cut along dp"));
  EXPECT_THAT(along(other_axis, ValueKind::kWeight), HasSubstr("keeps w0.shard(pp), where shards are cut along dp"));
  EXPECT_THAT(along(other_axis, ValueKind::kGradient), HasSubstr("turns g"));
  const auto both_axes = [&](Placement p) { return p.is_shard(dp) ? p.shard_on(pp) : p; };
  EXPECT_THAT(along(both_axes, ValueKind::kGradient), HasSubstr("turns g"));
  const auto partial = [&](Placement p) { return p.partial_on(dp); };
  EXPECT_THAT(along(partial, ValueKind::kActivation), HasSubstr("writes x0.0.partial(dp), but what it makes is"));
}

TEST(Verify, SaysInWordsWhatIsWrong) {
  const Compiled compiled = compile({.micro_batches = 2, .dp = 2});
  const auto broken = [&](int rank, OpKind kind, auto change) {
    auto programs = compiled.programs;
    auto& ops = programs[static_cast<size_t>(rank)].ops;
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const Op& o) { return o.kind == kind; });
    change(ops, op);
    return first_finding(programs, compiled.expected);
  };
  const auto drop = [](auto& ops, auto op) { ops.erase(op); };
  using ::testing::HasSubstr;
  EXPECT_THAT(broken(1, OpKind::kAllReduce, drop), HasSubstr("meets another collective on rank"));
  EXPECT_THAT(broken(0, OpKind::kLoad, drop), HasSubstr("reads x0.0, which holds nothing"));
  EXPECT_THAT(broken(0, OpKind::kStep, drop), HasSubstr("runs on w0 of version 0 in step 1"));
  EXPECT_THAT(broken(1, OpKind::kClip, [](auto&, auto op) { op->reads.pop_back(); }),
              HasSubstr("has not seen the whole norm of group 3"));
  EXPECT_THAT(broken(0, OpKind::kRelease, drop), HasSubstr("never released"));
  EXPECT_THAT(broken(0, OpKind::kBackward,
                     [](auto& ops, auto op) {
                       const Op copy = *op;
                       ops.insert(op, copy);
                     }),
              HasSubstr("which nobody has read"));
  auto cut = compile({.dp = 2, .zero = 1});
  for (auto& program : cut.programs) {  // the moments of the whole group, in steps on a shard
    auto& ops = program.ops;
    const auto step = std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::kStep; });
    for (auto* side : {&step->reads, &step->writes}) {
      for (Value& value : *side) {
        if (value.kind != ValueKind::kState) continue;
        Value whole = value;
        whole.placement = kWhole;
        if (auto moved = program.values.extract(value)) {
          moved.key() = whole;
          program.values.insert(std::move(moved));
        }
        value = whole;
      }
    }
  }
  EXPECT_THAT(first_finding(cut.programs, cut.expected), HasSubstr("other than its gradient"));
  auto one = compiled.programs;
  for (auto& program : one) std::erase_if(program.ops, [](const Op& op) { return is_collective(op); });
  EXPECT_THAT(first_finding(one, compiled.expected), HasSubstr("with 2 of 4 contributions"));
}

}  // namespace
}  // namespace herd::program::testing
