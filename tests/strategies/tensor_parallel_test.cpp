// Tensor and sequence parallel as a rewrite: that its steps prove with everything else, what they send and hold, and
// that no mutant of them proves.
#include "herd/strategies/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "herd/program/collective_message.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;
using Steps = std::vector<Program>;

spec::RunFile tensor_run(int tp, bool sequence, int64_t micro_batches = 1, int dp = 1, bool tied = true,
                         int64_t layers = 2) {
  spec::RunFile run = small_run(layers, "none", dp * micro_batches, tied);
  run.model.heads = 4, run.model.width = 16;
  run.model.context = 6;  // rows that four ranks don't share evenly
  run.mesh.tp = tp;
  run.strategy.sequence_parallel = sequence;
  run.strategy.bucket = 4096;
  return run;
}

// Eight heads read two key heads, or one; ranks that read the same have copies of it.
spec::RunFile copied_keys(int tp, int64_t key_heads, bool sequence, int64_t micro_batches = 1, int dp = 1) {
  spec::RunFile run = tensor_run(tp, sequence, micro_batches, dp);
  run.model.heads = 8;
  run.model.head_width = 2;
  run.model.kv_heads = key_heads;
  return run;
}

TEST(TensorParallel, Proves_WhereSeveralRanksHoldTheSameKeys) {
  int index = 0, drawn = 0;
  for (const auto& [tp, key_heads] : {std::pair(2, 1), {4, 1}, {4, 2}, {8, 2}}) {
    for (const bool sequence : {true, false}) {
      for (const int zero : {0, 1, 2, 3}) {
        for (const auto& [pp, dp] : {std::pair(1, 1), {1, 2}, {2, 1}, {2, 2}}) {
          if (tp * pp * dp > 16 || (dp == 1 && zero > 0) || ++drawn % one_in(2, 37) != 0) continue;
          spec::RunFile run = copied_keys(tp, key_heads, sequence, 2, dp);
          run.mesh.pp = pp;
          run.strategy.zero = zero;
          run.strategy.recompute = ++index % 3 == 0 ? "full" : "none";
          if (pp == 2 && index % 2 == 0) run.strategy.pipeline = "zero_bubble_h1";
          if (pp == 1 && index % 2 == 0) run.strategy.interleave_micro_batches = 2;
          const Steps steps = steps_of(run, tp * pp * dp);
          EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
        }
      }
    }
  }
}

// Keys and values of a layer once for all ranks that share them: the message is what one of these holds.
TEST(TensorParallel, SumsGradientsOfCopiedKeysOnceAStep) {
  const spec::RunFile run = copied_keys(4, 2, true, 3);
  const Steps steps = steps_of(run, 4);
  const int keys = steps[0].mesh.find("keys");
  ASSERT_NE(keys, kNoAxis);
  EXPECT_EQ(steps[3].mesh.ranks(keys, 3), (std::vector<int>{2, 3}));
  int64_t bytes = 0, sums = 0;
  for (const Op& op : steps[0].ops) {
    if (op.axis != keys) continue;
    ++sums;
    bytes += message_bytes(steps[0], op);
  }
  EXPECT_EQ(sums, 1);
  EXPECT_EQ(bytes, 2 * (2 * 2 * (16 + 1)) * 4);  // layers, (k and v of one head of width 2, with their biases), fp32
}

TEST(TensorParallel, Proves_WithEveryTechnique) {
  int index = 0;
  for (const bool sequence : {true, false}) {
    for (const int tp : {2, 4}) {
      for (const int pp : {1, 2, 3}) {
        for (const int dp : {1, 2, 4}) {
          for (const int zero : {0, 1, 2, 3}) {
            for (const int64_t micro_batches : {1, 3}) {
              for (const char* recompute : {"none", "full", "every:2"}) {
                for (const bool tied : {false, true}) {
                  if (dp * tp * pp > 16 || (dp == 1 && zero > 0)) continue;
                  if (++index % one_in(23, 311) != 0) continue;
                  spec::RunFile run = tensor_run(tp, sequence, micro_batches, dp, tied, 3);
                  run.mesh.pp = pp;
                  run.strategy.recompute = recompute;
                  run.strategy.zero = zero;
                  run.strategy.keep_gathered = index % 2 == 0;
                  if (pp > 1 && index % 3 == 0) run.strategy.pipeline = "zero_bubble_h1";
                  run.strategy.keep_whole = zero == 3 ? index % 3 : 0;
                  if (dp == 4) run.mesh.fsdp = 2;
                  const Steps steps = steps_of(run, dp * tp * pp);
                  EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(TensorParallel, ProvesWhereWeightsAreFrozen) {
  for (const char* frozen : {"w*.weight", "h.0.*", "*.bias", "h.0.ln_1.* h.0.attn.qkv.*"}) {
    for (const bool sequence : {true, false}) {
      spec::RunFile run = tensor_run(2, sequence, 2, 2);
      run.model.frozen = frozen;
      run.strategy.zero = sequence ? 3 : 1;
      steps_of(run, 4);
    }
  }
}

TEST(TensorParallel, IsReadByPeople) {
  for (const bool sequence : {true, false}) {
    spec::RunFile run = tensor_run(2, sequence, 1, 1, true, 1);
    testing_support::expect_golden(
        std::string("tests/strategies/golden/") + (sequence ? "sequence" : "tensor") + "_parallel_tp2.txt",
        to_text(steps_of(run, 2)[0]));
  }
  spec::RunFile again = tensor_run(2, true, 1, 1, true, 1);
  again.strategy.keep_gathered = false;
  testing_support::expect_golden("tests/strategies/golden/sequence_parallel_gathered_again_tp2.txt",
                                 to_text(steps_of(again, 2)[0]));
  again.strategy.recompute = "full";
  testing_support::expect_golden("tests/strategies/golden/sequence_parallel_gathered_again_recompute_tp2.txt",
                                 to_text(steps_of(again, 2)[0]));
  spec::RunFile run = tensor_run(2, true, 2, 2, true, 2);
  run.mesh.pp = 2;
  run.strategy.zero = 1;
  run.strategy.recompute = "full";
  for (const int rank : {0, 4}) {
    testing_support::expect_golden(
        "tests/strategies/golden/tp2_pp2_dp2_zero1_recompute_stage" + std::to_string(rank / 4) + ".txt",
        to_text(steps_of(run, 8)[static_cast<size_t>(rank)]));
  }
}

// Bytes of whole messages by kind of collective, of what a layer hands on.
std::map<OpKind, int64_t> messages(const Program& step) {
  std::map<OpKind, int64_t> out;
  for (const Op& op : step.ops) {
    if (op.lane == Lane::kActivations && is_collective(op)) out[op.kind] += message_bytes(step, op);
  }
  return out;
}

// 4 all-reduces a layer of T*h*e, or 4 gathers and 4 reduce-scatters; the embedding's sum and the head's input besides:
// forward one sum of the embedding, backward one of the head's; with sequence parallel one gather each, too. Inputs
// that are gathered again are two gathers a layer more.
TEST(TensorParallel, SendsWhatItsHeaderSays) {
  const int64_t layers = 3, whole = 6 * 16 * 4, padded = 8 * 16 * 4;  // rows * width * bytes
  for (const int tp : {2, 4}) {
    const int64_t rows = tp == 4 ? padded : whole;
    EXPECT_EQ(messages(steps_of(tensor_run(tp, false, 1, 1, true, layers), tp)[0]),
              (std::map<OpKind, int64_t>{{OpKind::kAllReduce, (4 * layers + 2) * whole}}));
    EXPECT_EQ(messages(steps_of(tensor_run(tp, true, 1, 1, true, layers), tp)[0]),
              (std::map<OpKind, int64_t>{{OpKind::kAllGather, (4 * layers + 2) * rows},
                                         {OpKind::kReduceScatter, (4 * layers + 2) * rows}}));
    spec::RunFile again = tensor_run(tp, true, 1, 1, true, layers);
    again.strategy.keep_gathered = false;
    EXPECT_EQ(messages(steps_of(again, tp)[0]),
              (std::map<OpKind, int64_t>{{OpKind::kAllGather, (6 * layers + 2) * rows},
                                         {OpKind::kReduceScatter, (4 * layers + 2) * rows}}));
  }
}

// A recompute gathers the inputs of attention and mlp again, and sums what attention gives. What it gathers for the
// last mlp of a segment is there when that is differentiated; what it gathers for the others would take memory until
// then.
TEST(TensorParallel, GathersAnInputOnce_ForARecomputeAndTheBackwardThatFollowsIt) {
  const int64_t layers = 4, rows = 6 * 16 * 4;
  for (const auto& [recompute, segments] : {std::pair("full", layers), {"every:2", layers / 2}}) {
    spec::RunFile run = tensor_run(2, true, 2, 1, true, layers);
    run.strategy.recompute = recompute;
    const auto micro_batches = [&](int64_t gathers, int64_t sums) {
      return std::map<OpKind, int64_t>{{OpKind::kAllGather, 2 * gathers * rows},
                                       {OpKind::kReduceScatter, 2 * sums * rows}};
    };
    const int64_t sums = 4 * layers + 2 + 2 * layers - segments;
    const Steps kept = steps_of(run, 2);
    EXPECT_EQ(messages(kept[0]), micro_batches(6 * layers + 2, sums)) << recompute;
    run.strategy.keep_gathered = false;
    const Steps again = steps_of(run, 2);
    EXPECT_EQ(messages(again[0]), micro_batches(8 * layers + 2 - segments, sums)) << recompute;
    EXPECT_LT(peak_bound(again[0], program::Tier::kDevice, again).bytes,
              peak_bound(kept[0], program::Tier::kDevice, kept).bytes)
        << recompute;
  }
}

TEST(TensorParallel, RanksHoldTheirPartOfWhatIsCut_AndAllOfTheRest) {
  for (const int tp : {2, 4}) {
    const spec::RunFile run = tensor_run(tp, true);
    const spec::ModelTable model = spec::program_table(run, 1);
    int64_t held = 0;
    for (const Program& step : steps_of(run, tp)) {
      for (const auto& [value, info] : step.values) held += value.kind == ValueKind::kWeight ? info.bytes : 0;
    }
    int64_t whole = 0;
    for (const auto& group : model.groups) {
      const bool cut = group.parameters[0].cut_dim >= 0;
      whole += 4 * group.elements() * (cut ? 1 : tp);
    }
    EXPECT_EQ(held, whole) << tp;
    EXPECT_EQ(model.parameters(), spec::model_table(run, 1).parameters());
  }
}

TEST(TensorParallel, LetsBlocksOfALayerShareAGatherOfItsWeights) {
  spec::RunFile run = tensor_run(2, true, 1, 2, false, 3);
  run.strategy.zero = 3;
  int gathers = 0;
  const Steps steps = steps_of(run, 4);
  for (const Op& op : steps[0].ops)
    gathers += op.kind == OpKind::kAllGather && op.writes[0].kind == ValueKind::kWeight ? 1 : 0;
  // Two groups of each layer forward and backward; tokens, positions, the final norm and the head once.
  EXPECT_EQ(gathers, 3 * 4 + 4);
}

// What is wrong in other systems until somebody looks at a loss curve.
enum class Between { kWholes, kRows, kRowsGatheredAgain };

class Broken : public testing::TestWithParam<std::tuple<Between, int>> {
 protected:
  void SetUp() override {
    const auto& [between, zero] = GetParam();
    run_ = tensor_run(2, between != Between::kWholes, 2, 2, true, 2);
    run_.strategy.keep_gathered = between != Between::kRowsGatheredAgain;
    run_.strategy.zero = zero;
    run_.strategy.recompute = zero == 1 ? "full" : "none";
    steps_ = steps_of(run_, 4);
    expected_ = expectation_of(run_, 4);
    ASSERT_EQ(first_finding(steps_, expected_), "");
  }

  // The change to all ranks, or to the last of them alone; how many there were.
  int expect_found(const char* what, bool all_ranks, const std::function<bool(std::vector<Op>&, size_t)>& change) {
    int mutants = 0;
    for (size_t i = 0; i < steps_[0].ops.size(); ++i) {
      Steps mutant = steps_;
      bool changed = false;
      for (size_t rank = all_ranks ? 0 : mutant.size() - 1; rank < mutant.size(); ++rank)
        changed = (i < mutant[rank].ops.size() && change(mutant[rank].ops, i)) || changed;
      if (!changed) continue;
      ++mutants;
      EXPECT_NE(first_finding(mutant, expected_), "") << what << ": " << describe(steps_[0], steps_[0].ops[i]);
    }
    return mutants;
  }

  spec::RunFile run_;
  Steps steps_;
  program::Expectation expected_;
};

bool of_activations(const Op& op) { return op.lane == Lane::kActivations && is_collective(op); }

TEST_P(Broken, IsFound) {
  const int dp = steps_[0].mesh.find("dp"), tp = steps_[0].mesh.find("tp");
  const auto drop = [](std::vector<Op>& ops, size_t i) {
    if (!of_activations(ops[i])) return false;
    ops.erase(ops.begin() + static_cast<long>(i));
    return true;
  };
  const auto twice = [](std::vector<Op>& ops, size_t i) {
    if (!of_activations(ops[i])) return false;
    const Op copy = ops[i];
    ops.insert(ops.begin() + static_cast<long>(i), copy);
    return true;
  };
  const auto again = [](std::vector<Op>& ops, size_t i) {  // the sum of a sum
    if (ops[i].kind != OpKind::kAllReduce || !of_activations(ops[i])) return false;
    Op copy = ops[i];
    copy.reads = copy.writes;
    ops.insert(ops.begin() + static_cast<long>(i) + 1, copy);
    return true;
  };
  const auto other_axis = [&](std::vector<Op>& ops, size_t i) {
    if (ops[i].axis == kNoAxis) return false;
    ops[i].axis = ops[i].axis == tp ? dp : tp;
    return true;
  };
  const auto other_kind = [](std::vector<Op>& ops, size_t i) {
    if (!of_activations(ops[i])) return false;
    ops[i].kind = ops[i].kind == OpKind::kReduceScatter ? OpKind::kAllReduce : OpKind::kReduceScatter;
    return true;
  };
  const auto unsummed = [&](std::vector<Op>& ops, size_t i) {  // gradients of norms stay those of this rank's rows
    if (ops[i].axis != tp || ops[i].lane != Lane::kReduce) return false;
    ops.erase(ops.begin() + static_cast<long>(i));
    return true;
  };
  const auto alone = [](std::vector<Op>& ops, size_t i) {
    if (ops[i].kind != OpKind::kLoss) return false;
    ops[i].axis = kNoAxis;
    return true;
  };
  const auto without_one = [](std::vector<Op>& ops, size_t i) {  // a reader's part of a gradient is left out
    if (ops[i].kind != OpKind::kBackward) return false;
    for (const Value& value : ops[i].writes) {
      const auto read = std::find(ops[i].reads.begin(), ops[i].reads.end(), value);
      if (value.kind != ValueKind::kActivationGradient || read == ops[i].reads.end()) continue;
      ops[i].reads.erase(read);
      return true;
    }
    return false;
  };
  const auto counts_all = [&](std::vector<Op>& ops, size_t i) {  // wholes count on every rank of the axis
    if (ops[i].kind != OpKind::kNorm || ops[i].reads.empty()) return false;
    std::vector<Value> all;
    for (const Op& op : ops) {
      if (op.kind != OpKind::kStep) continue;
      for (const Value& value : op.reads)
        if (value.kind == ValueKind::kGradient) all.push_back(value);
    }
    if (ops[i].reads == all) return false;
    ops[i].reads = all;
    return true;
  };
  const auto stale = [](std::vector<Op>& ops, size_t i) {  // a graph whose inputs nobody gathers again
    if (ops[i].kind != OpKind::kBackward) return false;
    return std::erase_if(ops[i].reads, [](const Value& value) { return value.kind == ValueKind::kActivation; }) > 0;
  };
  const auto other_input = [](std::vector<Op>& ops, size_t i) {  // that of another micro-batch
    bool changed = false;
    for (Value& value : ops[i].reads) {
      if (ops[i].kind != OpKind::kBackward || value.kind != ValueKind::kActivation) continue;
      value.micro_batch = 1 - value.micro_batch, changed = true;
    }
    return changed;
  };
  const auto placed_along_another = [&](std::vector<Op>& ops, size_t i) {  // in name alone
    if (!of_activations(ops[i])) return false;
    for (auto* side : {&ops[i].reads, &ops[i].writes}) {
      for (Value& value : *side) {
        if (value.placement.is_shard(tp)) value.placement = value.placement.whole_on(tp).shard_on(dp);
        if (value.placement.is_partial(tp)) value.placement = value.placement.whole_on(tp).partial_on(dp);
      }
    }
    return true;
  };
  const bool sequence = std::get<0>(GetParam()) != Between::kWholes;
  const int gathered = std::get<0>(GetParam()) == Between::kRowsGatheredAgain ? 8 : 0;  // blocks and micro-batches
  EXPECT_EQ(expect_found("backward without its input", true, stale), gathered);
  EXPECT_EQ(expect_found("backward with the input of another micro-batch", true, other_input), gathered);
  EXPECT_GE(expect_found("left out", true, drop), 20);
  EXPECT_GE(expect_found("left out on one rank", false, drop), 20);
  EXPECT_GE(expect_found("twice", true, twice), 20);
  EXPECT_GE(expect_found("over another axis", true, other_axis), 20);
  EXPECT_GE(expect_found("over another axis on one rank", false, other_axis), 20);
  EXPECT_GE(expect_found("another kind", true, other_kind), 20);
  EXPECT_GE(expect_found("placed along another axis", true, placed_along_another), 20);
  EXPECT_GE(expect_found("a sum of a sum", true, again), sequence ? 0 : 10);
  EXPECT_GE(expect_found("gradients of norms are not summed", true, unsummed), 1);
  EXPECT_EQ(expect_found("each rank has a loss of its own", true, alone), 2);
  EXPECT_GE(expect_found("a reader is left out", true, without_one), 8);
  EXPECT_EQ(expect_found("wholes are counted on all ranks", true, counts_all), 1);
}

// A gradient of keys, or of norms of heads, that stays where it was made, comes home twice, or comes to others.
TEST(TensorParallel, GradientsOfCopiedKeysThatAreNotSummedOnceAreFound) {
  for (const auto& [tp, key_heads, has_norms] : {std::tuple(4, 2, false), {4, 1, false}, {4, 4, true}}) {
    const int parts = has_norms ? 1 : key_heads;
    for (const int zero : {0, 1, 3}) {
      spec::RunFile run = copied_keys(tp, key_heads, true, 2, 2);
      if (has_norms) run.model.kind = "llama", run.model.norm = "rmsnorm", run.model.qk_norm = true;
      run.strategy.zero = zero;
      const Steps steps = steps_of(run, 2 * tp);
      const program::Expectation expected = expectation_of(run, 2 * tp);
      ASSERT_EQ(first_finding(steps, expected), "");
      const int copies_axis = expected.copied_groups.begin()->second;
      const auto keys_group = [&](const Value& value) { return expected.copied_groups.contains(value.index); };
      const auto is_sum = [&](const Op& op) {
        return op.axis == copies_axis && op.kind == OpKind::kAllReduce && !op.writes.empty() &&
               op.writes[0].kind == ValueKind::kGradient && keys_group(op.writes[0]);
      };
      const auto expect_found = [&](const char* what, const auto& change) {
        for (const bool all : {true, false}) {
          Steps mutant = steps;
          int changed = 0;
          for (size_t rank = all ? 0 : mutant.size() - 1; rank < mutant.size(); ++rank)
            changed += change(mutant[rank].ops) ? 1 : 0;
          EXPECT_EQ(changed, all ? 2 * tp : 1) << what;
          EXPECT_NE(first_finding(mutant, expected), "") << what << (all ? "" : " on one rank") << ", tp " << tp
                                                         << ", key heads " << key_heads << ", zero " << zero;
        }
      };
      const auto the_sum = [&](std::vector<Op>& ops) { return std::find_if(ops.begin(), ops.end(), is_sum); };
      expect_found("the sum is left out", [&](std::vector<Op>& ops) {
        const auto at = the_sum(ops);
        return at != ops.end() && (ops.erase(at), true);
      });
      expect_found("one of its groups is left out", [&](std::vector<Op>& ops) {
        const auto at = the_sum(ops);
        return at != ops.end() && at->reads.size() > 1 && (at->reads.pop_back(), at->writes.pop_back(), true);
      });
      expect_found("the sum is made twice", [&](std::vector<Op>& ops) {
        const auto at = the_sum(ops);
        if (at == ops.end()) return false;
        const Op copy = *at;
        ops.insert(at, copy);
        return true;
      });
      const int tensor = expected.mesh.dividing(Divided::kLayers), data = expected.mesh.dividing(Divided::kSamples);
      for (const int wrong : {tensor == copies_axis ? data : tensor, data}) {
        expect_found("the sum is over another axis", [&, wrong = wrong](std::vector<Op>& ops) {
          const auto at = the_sum(ops);
          return at != ops.end() && (at->axis = wrong, true);
        });
      }
      const auto counts_copies = [&](std::vector<Op>& ops) {  // the norm of a part once for each rank that holds it
        const auto norm = std::ranges::find_if(ops, [](const Op& op) { return op.kind == OpKind::kNorm; });
        const size_t before = norm->reads.size();
        for (const Op& op : ops) {
          if (op.kind != OpKind::kStep) continue;
          for (const Value& value : op.reads) {
            const bool counted = std::ranges::find(norm->reads, value) != norm->reads.end();
            if (value.kind == ValueKind::kGradient && keys_group(value) && !counted) norm->reads.push_back(value);
          }
        }
        return norm->reads.size() > before;
      };
      Steps mutant = steps;
      int changed = 0;
      for (Program& step : mutant) changed += counts_copies(step.ops) ? 1 : 0;
      EXPECT_EQ(changed, 2 * tp - 2 * parts);
      EXPECT_NE(first_finding(mutant, expected), "") << "copies are counted";
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::tuple<Between, int>>& one) {
  constexpr const char* kNames[] = {"Wholes", "Rows", "RowsGatheredAgain"};
  return kNames[static_cast<size_t>(std::get<0>(one.param))] + std::string("Zero") +
         std::to_string(std::get<1>(one.param));
}

INSTANTIATE_TEST_SUITE_P(TensorParallel, Broken,
                         testing::Combine(testing::Values(Between::kWholes, Between::kRows,
                                                          Between::kRowsGatheredAgain),
                                          testing::Values(0, 1, 3)),
                         name_of);

}  // namespace
}  // namespace herd::strategies
