// Expert parallel as a rewrite: that its steps prove with everything that it composes with, what they send, that no
// mutant of them proves, and what is refused.
#include "herd/strategies/expert_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "herd/program/collective_message.h"
#include "herd/program/memory_bound.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/program/value_memory.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::ValueKind;
using Steps = std::vector<Program>;

spec::RunFile expert_run(int ep, int64_t micro_batches = 1, int data = 2, int64_t layers = 2) {
  spec::RunFile run = small_run(layers, "none", data * micro_batches);
  run.model.kind = "moe", run.model.norm = "rmsnorm";
  run.model.experts = 8, run.model.top_k = 2, run.model.expert_ffn = 4;
  run.mesh.ep = ep;
  run.strategy.bucket = 4096;
  return run;
}

TEST(ExpertParallel, ProvesWithEveryTechnique) {
  int index = 0, proved = 0;
  for (const int ep : {2, 4, 8}) {
    for (const int copies : {1, 2, 3}) {
      for (const int pp : {1, 2, 3}) {
        for (const int zero : {0, 1, 2, 3}) {
          for (const int64_t micro_batches : {1, 3}) {
            for (const char* recompute : {"none", "full", "every:2"}) {
              const int data = ep * copies, ranks = data * pp;
              if (ranks > 16 || ++index % one_in(11, 53) != 0) continue;
              spec::RunFile run = expert_run(ep, micro_batches, data, 3);
              run.model.tie_embeddings = index % 2 == 0;
              run.model.balance_loss = index % 3 == 0 ? 0 : 0.01;
              run.mesh.pp = pp;
              run.strategy.zero = zero;
              if (index % 3 == 1) run.mesh.fsdp = index % 2 == 0 ? data : ep;  // beside copies of shards, or none
              if (zero == 3 && index % 4 == 1) run.strategy.keep_whole = 2;
              if (zero == 3 && index % 5 == 1) run.strategy.gather_codec = "int8";
              run.strategy.recompute = recompute;
              if (pp > 1 && index % 4 == 0) run.strategy.pipeline = "zero_bubble_h1";
              if (index % 5 == 0) run.strategy.offload = index % 2 == 0 ? "window" : "states";
              if (index % 6 == 0) run.model.frozen = "h.0.experts.* h.1.experts.down.weight";
              if (index % 7 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
              if (index % 2 == 0 && pp == 1) run.mesh.ranks_per_host = ep / 2;
              const Steps steps = steps_of(run, ranks);
              EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
              ++proved;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(proved, 3);
}

// Of 4 tokens of width 8 and two experts each, a rank sends and relays 128 bytes, makes 256 bytes of rows of these,
// with two weights of 4 bytes for each of 8 rows, and has the rows of a source in fp32.
TEST(ExpertParallel, PlansWhatRelaysBetweenHostsHold) {
  spec::RunFile run = expert_run(4, 1, 4);
  const auto of_exchanges = [](const Program& step) {
    std::set<int64_t> out;
    for (const Op& op : step.ops) {
      const auto scratch = step.scratch.find(program::scratch_key(op));
      if (op.kind == OpKind::kAllToAll) out.insert(scratch == step.scratch.end() ? 0 : scratch->second);
    }
    return out;
  };
  EXPECT_EQ(of_exchanges(steps_of(run, 4)[0]), std::set<int64_t>{0});
  run.mesh.ranks_per_host = 2;
  const Steps between = steps_of(run, 4);
  EXPECT_EQ(of_exchanges(between[0]), std::set<int64_t>{2 * 128 + 256 + 2 * 4 * 8 + 256});
  EXPECT_NE(to_text(between[0]).find("all_to_all  5      832"), std::string::npos) << to_text(between[0]);
  spec::RunFile by_turns = expert_run(4, 2, 4);  // an exchange of one micro-batch beside a pass of the other
  by_turns.strategy.interleave_micro_batches = 2;
  const auto peak = [&](int64_t ranks_per_host) {
    by_turns.mesh.ranks_per_host = ranks_per_host;
    const Steps steps = steps_of(by_turns, 4);
    return peak_bound(steps[0], program::Tier::kDevice, steps).bytes;
  };
  EXPECT_EQ(peak(2), peak(4) + 832);
  run.strategy.precision = "bf16";
  EXPECT_EQ(of_exchanges(steps_of(run, 4)[0]), std::set<int64_t>{2 * 64 + 128 + 2 * 4 * 8 + 2 * 256});
  for (const char* straight : {"mesh.ranks_per_host=4", "mesh.ep=2", "model.top_k=1", "model.experts=4"}) {
    const spec::RunFile other = spec::parse_run_text(spec::to_toml(run), "test", std::vector<std::string>{straight});
    const std::string key = straight;
    const std::set<int64_t> scratch = of_exchanges(steps_of(other, 4)[0]);
    EXPECT_EQ(!scratch.contains(0), key == "model.experts=4") << straight;
  }
}

// The all-to-alls of attention beside them relay nothing: without exchanges of rows no bytes are planned for relays.
TEST(ExpertParallel, PlansRelaysForExchangesOfRowsAlone) {
  spec::RunFile run = expert_run(4, 1, 2);
  run.mesh.cp = 2, run.mesh.ranks_per_host = 2;
  run.strategy.context = "all_to_all";
  Program step = steps_of(run, 4)[0];
  constexpr int64_t kMany = int64_t{1} << 30;
  int relays = 0;
  for (auto& [op, bytes] : step.scratch) {
    if (op.first == OpKind::kAllToAll) bytes = kMany, ++relays;
  }
  EXPECT_EQ(relays, 2) << "one for each layer";
  EXPECT_GT(in_order_peak(step, program::Tier::kDevice).bytes, kMany);
  std::erase_if(step.ops, program::moves_rows_of_experts);
  EXPECT_GT(std::ranges::count(step.ops, OpKind::kAllToAll, &Op::kind), 0);
  EXPECT_LT(in_order_peak(step, program::Tier::kDevice).bytes, kMany);
}

// Ranks of a tensor axis share attention, and run experts on their own rows, whoever holds these.
spec::RunFile with_tensor_ranks(spec::RunFile run, int tp) {
  run.mesh.tp = tp;
  run.model.balance_loss = 0, run.model.bias_balancing = 0.001;
  return run;
}

TEST(ExpertParallel, ProvesBesideTensorParallel) {
  int index = 0;
  for (const auto& [tp, ep, copies, pp] : {std::tuple(2, 1, 2, 1), {2, 2, 1, 1}, {2, 2, 2, 1}, {2, 2, 1, 2}}) {
    for (const int zero : {0, 1, 2, 3}) {
      if (++index % one_in(3, 7) != 0) continue;
      const int data = ep * copies;
      spec::RunFile run = with_tensor_ranks(expert_run(ep, 1 + index % 2, data, 2), tp);
      run.mesh.pp = pp, run.strategy.zero = zero;
      run.model.kv_heads = index % 3 == 0 ? 1 : 2;
      run.strategy.recompute = index % 2 == 0 ? "full" : "none";
      run.strategy.keep_gathered = index % 4 < 2;
      if (pp > 1 && zero < 2) run.strategy.pipeline = "zero_bubble_h1";
      if (pp == 1 && index % 2 == 1) run.strategy.interleave_micro_batches = 2;
      steps_of(run, data * tp * pp);
    }
  }
}

// Ranks of a context axis have tokens of their own, which go to the ranks of their experts.
TEST(ExpertParallel, ProvesBesideContextParallel) {
  int index = 0;
  for (const auto& [cp, tp, ep, data, pp] : {std::tuple(2, 1, 1, 2, 1),
                                             {2, 1, 2, 1, 1},
                                             {2, 1, 4, 2, 1},
                                             {4, 1, 2, 1, 2},
                                             {2, 2, 2, 2, 1},
                                             {2, 1, 2, 2, 2}}) {
    for (const char* context : {"ring", "all_to_all"}) {
      for (const int zero : {0, 1, 2, 3}) {
        if (++index % one_in(5, 9) != 0) continue;
        spec::RunFile run = expert_run(ep, 1 + index % 2, data, 2);
        if (index % 3 > 0) run.model.balance_loss = 0, run.model.bias_balancing = 0.001;
        if (index % 3 == 1) run.model.capacity_factor = 1.25;
        run.model.heads = run.model.kv_heads = 4;
        run.mesh.cp = cp, run.mesh.tp = tp, run.mesh.pp = pp, run.strategy.zero = zero;
        run.strategy.context = context;
        run.strategy.recompute = index % 2 == 0 ? "full" : "none";
        const Steps steps = steps_of(run, data * cp * tp * pp);
        EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
      }
    }
  }
  // A quotient of many ranks, of which those that share tokens hold all experts.
  spec::RunFile run = expert_run(8, 1, 4, 2);
  run.model.balance_loss = 0;
  run.mesh.cp = run.model.context = 8, run.strategy.context = "ring";
  const spec::Layout layout = trainable_layout(run, 32);
  const Quotient quotient = quotient_of(run, layout, false);
  EXPECT_EQ(quotient.run.mesh.cp, 2);
  EXPECT_EQ(quotient.run.mesh.ep, 2);
  EXPECT_EQ(programs_of_run(run, spec::program_table(run, 1), layout, {0, 31}).size(), 2U);
}

TEST(ExpertParallel, FindsMutantsOfSumsBesideTensorParallel) {
  const spec::RunFile run = with_tensor_ranks(expert_run(2, 1, 4, 1), 2);
  const std::set<int> experts = groups_of_experts(spec::program_table(run, 1));
  const Steps steps = steps_of(run, 8);
  const program::Expectation expected = expectation_of(run, 8);
  EXPECT_EQ(first_finding(steps, expected), "");
  std::set<std::string> axes;  // of the sums of experts
  for (size_t i = 0; i < steps[0].ops.size(); ++i) {
    const Op& op = steps[0].ops[i];
    const bool sums = is_collective(op) && op.writes[0].kind == ValueKind::kGradient &&
                      std::ranges::any_of(op.writes, [&](const auto& v) { return experts.contains(v.index); });
    if (!sums) continue;
    axes.insert(program::axis_name(steps[0].mesh, op.axis));
    for (const char* other : {"", "tp", "dp", "ep", "edp"}) {  // "" = no sum
      Steps mutant = steps;
      for (Program& step : mutant) {
        if (*other == '\0')
          step.ops.erase(step.ops.begin() + static_cast<long>(i));
        else
          step.ops[i].axis = step.mesh.find(other);
      }
      if (mutant[0].ops.size() == steps[0].ops.size() && mutant[0].ops[i].axis == op.axis) continue;
      EXPECT_NE(first_finding(mutant, expected), "") << describe(steps[0], op) << " along " << other;
    }
  }
  EXPECT_EQ(axes, (std::set<std::string>{"edp", "tp"}));
}

TEST(ExpertParallel, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/expert_parallel_ep2.txt",
                                 to_text(steps_of(expert_run(2, 1, 4, 1), 4)[0]));
}

// Each rank holds an ep-th of the experts, and of their gradients and states; the rest as without.
TEST(ExpertParallel, CutsExpertsAlone) {
  const spec::RunFile whole = expert_run(1, 1, 4), cut = expert_run(4, 1, 4);
  const spec::ModelTable table = spec::program_table(cut, 1);
  const std::set<int> experts = groups_of_experts(table);
  EXPECT_EQ(experts.size(), 2U);
  const Program before = steps_of(whole, 4)[0], after = steps_of(cut, 4)[0];
  for (const auto& [value, info] : before.values) {
    if (value.kind != ValueKind::kWeight && value.kind != ValueKind::kGradient && value.kind != ValueKind::kState)
      continue;
    EXPECT_EQ(after.values.at(value).bytes, info.bytes / (experts.contains(value.index) ? 4 : 1));
  }
}

// Each ZeRO stage cuts experts over the ranks that hold the same ones, and all else over all data ranks or those of
// mesh.fsdp.
TEST(ExpertParallel, ZeroCutsExpertsOverRanksWithTheSameOnes) {
  for (const int fsdp : {1, 2, 8}) {
    for (const int zero : {1, 2, 3}) {
      spec::RunFile run = expert_run(2, 1, 8);
      run.strategy.zero = zero, run.mesh.fsdp = fsdp;
      const std::set<int> experts = groups_of_experts(spec::program_table(run, 1));
      const Program whole = steps_of(expert_run(1, 1, 8), 8)[0], cut = steps_of(run, 8)[0];
      const int experts_axis = cut.mesh.find("edp"), axis = cut.mesh.find(fsdp == 1 || fsdp == 8 ? "dp" : "fsdp");
      for (const auto& [value, info] : whole.values) {
        const bool is_cut = value.kind == ValueKind::kState || (value.kind == ValueKind::kGradient && zero > 1) ||
                            (value.kind == ValueKind::kWeight && zero > 2);
        if (!is_cut) continue;
        const bool of_experts = experts.contains(value.index);
        const int cut_by = of_experts ? experts_axis : fsdp == 8 ? cut.mesh.find("fsdp") : axis;
        const int64_t parts = of_experts ? 8 : fsdp == 1 ? 8 : fsdp;
        const program::ValueInfo& shard = cut.values.at(placed(value, program::kWhole.shard_on(cut_by)));
        EXPECT_NEAR(static_cast<double>(shard.bytes), static_cast<double>(info.bytes) / static_cast<double>(parts), 128)
            << value_name(cut.mesh, value) << ", stage " << zero << ", fsdp " << fsdp;
        const auto kept = cut.values.find(value);
        EXPECT_TRUE(kept == cut.values.end() || !kept->second.persistent) << value_name(cut.mesh, value);
      }
    }
  }
}

// Under a uniform router a rank sends 4 k T h e (P-1)/P of a layer and a micro-batch, and half as much more with
// recompute.
TEST(ExpertParallel, SendsWhatItsEquationSays) {
  for (const int ep : {2, 4}) {
    for (const bool recomputes : {false, true}) {
      spec::RunFile run = expert_run(ep, 3, ep);
      if (recomputes) run.strategy.recompute = "full";
      double sent = 0;
      const Program step = steps_of(run, ep)[0];
      for (const Op& op : step.ops) {
        if (moves_rows_of_experts(op)) sent += static_cast<double>(message_bytes(step, op)) * (ep - 1) / ep;
      }
      EXPECT_DOUBLE_EQ(sent, 2 * 3 * (recomputes ? 6.0 : 4.0) * 2 * 4 * 8 * 4 * (ep - 1) / ep);
    }
  }
}

// The same change to the programs of all ranks, or of the last one alone, at every op that it applies to.
int expect_mutants_found(const spec::RunFile& run, int ranks, const char* what, bool all_ranks,
                         const std::function<bool(Program&, size_t)>& change) {
  const Steps steps = steps_of(run, ranks);
  const program::Expectation expected = expectation_of(run, ranks);
  EXPECT_EQ(first_finding(steps, expected), "");
  int mutants = 0;
  for (size_t i = 0; i < steps[0].ops.size(); ++i) {
    Steps mutant = steps;
    bool changed = false;
    for (size_t rank = all_ranks ? 0 : mutant.size() - 1; rank < mutant.size(); ++rank)
      changed = change(mutant[rank], i) || changed;
    if (!changed) continue;
    ++mutants;
    EXPECT_NE(first_finding(mutant, expected), "") << what << ": " << describe(steps[0], steps[0].ops[i]);
  }
  return mutants;
}

TEST(ExpertParallel, MutantsAreFound) {
  for (const auto& [zero, fsdp] : {std::pair(0, 1), {2, 1}, {3, 1}, {3, 2}}) {
    spec::RunFile run = expert_run(2, 2, 4, 2);
    run.strategy.zero = zero, run.mesh.fsdp = fsdp;
    const std::set<int> experts = groups_of_experts(spec::program_table(run, 1));
    const auto sums_experts = [&](const Op& op) {
      return is_collective(op) && op.writes[0].kind == ValueKind::kGradient && experts.contains(op.writes[0].index);
    };
    const auto sums_others = [&](const Op& op) {
      return is_collective(op) && op.writes[0].kind == ValueKind::kGradient && !experts.contains(op.writes[0].index);
    };
    const auto sums_norms = [&](const Op& op) { return is_collective(op) && op.writes[0].kind == ValueKind::kNorm; };
    const auto moves_rows = [](const Op& op) { return moves_rows_of_experts(op); };
    const auto exchanges = [&](const Op& op) {  // rows, or what routers have chosen
      return moves_rows(op) || (is_collective(op) && op.writes[0].kind == ValueKind::kRouting);
    };
    const int data_axis = trainable_layout(run, 4).data_axis;
    const auto along = [data_axis](const std::string& axis, const auto& applies) {  // "" = alone
      return [=](Program& step, size_t i) {
        const int other = axis.empty() ? kNoAxis : axis == "data" ? data_axis : step.mesh.find(axis);
        if (!applies(step.ops[i])) return false;
        const auto members = [&](int of) {
          return of == kNoAxis ? std::vector{step.rank} : step.mesh.ranks(of, step.rank);
        };
        if (members(step.ops[i].axis) == members(other)) return false;
        step.ops[i].axis = other;
        return true;
      };
    };
    const auto without = [](const auto& applies) {
      return [=](Program& step, size_t i) {
        if (!applies(step.ops[i])) return false;
        step.ops.erase(step.ops.begin() + static_cast<long>(i));
        return true;
      };
    };
    const auto twice = [](const auto& applies) {
      return [=](Program& step, size_t i) {
        if (!applies(step.ops[i])) return false;
        const Op copy = step.ops[i];
        step.ops.insert(step.ops.begin() + static_cast<long>(i), copy);
        return true;
      };
    };
    EXPECT_GT(expect_mutants_found(run, 4, "experts are summed over all data ranks", true, along("data", sums_experts)),
              0);
    EXPECT_GT(
        expect_mutants_found(run, 4, "experts are summed over ranks with other ones", true, along("ep", sums_experts)),
        0);
    EXPECT_GT(expect_mutants_found(run, 4, "experts are not summed", true, without(sums_experts)), 0);
    EXPECT_GT(expect_mutants_found(run, 4, "experts are summed twice", true, twice(sums_experts)), 0);
    const int as_experts =
        expect_mutants_found(run, 4, "others are summed as experts are", true, along("edp", sums_others));
    EXPECT_GE(as_experts, fsdp == 1 ? 1 : 0);  // copies of shards may be the ranks with the same experts
    EXPECT_GT(expect_mutants_found(run, 4, "norms are summed over too few", true, along("edp", sums_norms)), 0);
    EXPECT_GT(expect_mutants_found(run, 4, "norms are not summed", true, without(sums_norms)), 0);
    if (zero > 0) continue;  // exchanges are the same with all of them
    for (const bool all_ranks : {true, false}) {
      EXPECT_GT(expect_mutants_found(run, 4, "an exchange is missing", all_ranks, without(exchanges)), 15);
      EXPECT_GT(expect_mutants_found(run, 4, "an exchange is there twice", all_ranks, twice(exchanges)), 15);
      EXPECT_GT(expect_mutants_found(run, 4, "a rank exchanges alone", all_ranks, along("", exchanges)), 15);
      EXPECT_GT(
          expect_mutants_found(run, 4, "rows go to ranks with the same experts", all_ranks, along("edp", exchanges)),
          15);
    }
    EXPECT_GT(expect_mutants_found(run, 4, "an exchange is on another lane", true,
                                   [&](Program& step, size_t i) {
                                     if (!exchanges(step.ops[i])) return false;
                                     step.ops[i].lane = Lane::kGather;
                                     return true;
                                   }),
              15);
    spec::RunFile recomputed = run;
    recomputed.strategy.recompute = "full";
    EXPECT_GT(expect_mutants_found(recomputed, 4, "an exchange is missing", true, without(exchanges)), 20);
    EXPECT_GT(expect_mutants_found(recomputed, 4, "an exchange is there twice", true, twice(exchanges)), 20);
    const auto moving = [&](const std::function<bool(Op&)>& change) {
      return [=](Program& step, size_t i) { return moves_rows(step.ops[i]) && change(step.ops[i]); };
    };
    EXPECT_GT(expect_mutants_found(run, 4, "ranks exchange rows of two micro-batches", false, moving([](Op& op) {
                                     for (auto* side : {&op.reads, &op.writes})
                                       for (auto& value : *side) value.micro_batch = 1 - value.micro_batch;
                                     return true;
                                   })),
              15);
    EXPECT_GT(expect_mutants_found(run, 4, "counts are those of another micro-batch", true, moving([](Op& op) {
                                     op.reads[1].micro_batch = 1 - op.reads[1].micro_batch;
                                     return true;
                                   })),
              15);
    const int layers_apart = 8;  // blocks of a layer
    EXPECT_GT(expect_mutants_found(run, 4, "counts are those of another layer", true, moving([&](Op& op) {
                                     op.reads[1].index +=
                                         op.reads[1].index > layers_apart ? -layers_apart : layers_apart;
                                     return true;
                                   })),
              15);
    EXPECT_GT(expect_mutants_found(run, 4, "weights multiply another gradient", true, moving([](Op& op) {
                                     if (op.reads.size() < 3) return false;
                                     ++op.reads[2].index;
                                     return true;
                                   })),
              3);
    EXPECT_GT(expect_mutants_found(run, 4, "experts run on the rows of their own rank alone", true,
                                   [&](Program& step, size_t i) {
                                     const int ep = step.mesh.find("ep");
                                     Op& op = step.ops[i];
                                     bool changed = false;
                                     for (auto& value : op.reads) {
                                       if (!is_pass(op) || !value.placement.is_shard(ep)) continue;
                                       value.placement = value.placement.whole_on(ep);
                                       changed = true;
                                     }
                                     return changed;
                                   }),
              7);
    EXPECT_GT(expect_mutants_found(run, 4, "rows that have not come back are added up", true,
                                   [&](Program& step, size_t i) {
                                     const int ep = step.mesh.find("ep");
                                     Op& op = step.ops[i];
                                     bool changed = false;
                                     for (auto& value : op.reads) {
                                       program::Value there = value;
                                       there.placement = value.placement.shard_on(ep, program::Dimension::kExperts);
                                       if (!is_pass(op) || there == value || !step.values.contains(there)) continue;
                                       value = there;
                                       changed = true;
                                     }
                                     return changed;
                                   }),
              7);
  }
}

// Where passes are computed again, they take over what the first has chosen. A mutant changes all ranks.
TEST(ExpertParallel, MutantsOfTheRoutingAreFound) {
  const auto is_routing = [](const program::Value& value) { return value.kind == ValueKind::kRouting; };
  for (const auto& [recompute, ep] : {std::pair("full", 2), {"every:2", 1}}) {
    spec::RunFile run = expert_run(ep, 2, 2, 3);
    run.strategy.recompute = recompute;
    const Steps steps = steps_of(run, 2);
    int taken_over = 0;
    for (const Op& op : steps[0].ops) taken_over += static_cast<int>(std::ranges::count_if(op.reads, is_routing));
    EXPECT_GE(taken_over, 2);  // of two micro-batches
    const auto mutants = [&](const char* what, const std::function<bool(Program&, Op&)>& change) {
      EXPECT_GE(
          expect_mutants_found(run, 2, what, true, [&](Program& step, size_t i) { return change(step, step.ops[i]); }),
          2)
          << what;
    };
    const auto reads_routing = [&](const Op& op) { return is_pass(op) && std::ranges::any_of(op.reads, is_routing); };
    mutants("the routing is computed again", [&](Program&, Op& op) {
      if (!reads_routing(op)) return false;
      std::erase_if(op.reads, is_routing);
      return true;
    });
    mutants("the routing is not kept", [&](Program&, Op& op) {
      if (!is_pass(op) || std::ranges::none_of(op.writes, is_routing)) return false;
      std::erase_if(op.writes, is_routing);
      return true;
    });
    mutants("the routing is that of another micro-batch", [&](Program&, Op& op) {
      if (!reads_routing(op)) return false;
      const auto read = std::ranges::find_if(op.reads, is_routing);
      read->micro_batch = 1 - read->micro_batch;
      return true;
    });
    mutants("the routing is kept and computed again", [&](Program&, Op& op) {
      if (!reads_routing(op)) return false;
      op.writes.push_back(program::routing(op.block, op.micro_batch));
      return true;
    });
  }
  // No pass keeps anything, and each chooses for itself.
  {
    spec::RunFile run = expert_run(2, 2, 2, 3);
    run.strategy.recompute = "full";
    Steps mutant = steps_of(run, 2);
    for (Program& step : mutant) {
      for (Op& op : step.ops) std::erase_if(op.reads, is_routing), std::erase_if(op.writes, is_routing);
    }
    EXPECT_NE(first_finding(mutant, expectation_of(run, 2)), "");
  }
  // Of another layer, which its own rank has.
  spec::RunFile run = expert_run(1, 1, 1, 3);
  run.strategy.recompute = "full";
  EXPECT_EQ(expect_mutants_found(run, 1, "the routing is that of another layer", true,
                                 [&](Program& step, size_t i) {
                                   Op& op = step.ops[i];
                                   const auto read = std::ranges::find_if(op.reads, is_routing);
                                   if (!is_pass(op) || read == op.reads.end()) return false;
                                   read->index = read->index == 1 ? 2 : 1;
                                   return true;
                                 }),
            3);
}

TEST(ExpertParallel, ProvesOfManyRanksAFew) {
  spec::RunFile run = expert_run(8, 1, 32);
  run.mesh.pp = 4, run.model.layers = 8;
  const spec::Layout layout = trainable_layout(run, 128);
  const spec::ModelTable table = spec::program_table(run, 1);
  const Quotient quotient = quotient_of(run, layout, false);
  EXPECT_EQ(quotient.run.mesh.ep, 2);
  EXPECT_EQ(quotient.ranks, 3 * 4);
  EXPECT_EQ(programs_of_run(run, table, layout, {0, 127}).size(), 2U);
  // Hybrid shards, all of which hold experts together, or some.
  for (const auto& [fsdp, ep, experts, ranks] :
       {std::tuple(8, 8, 2, 3 * 4), {32, 8, 2, 3 * 4}, {8, 32, 4, 3 * 4}, {2, 8, 2, 3 * 4}}) {
    run.mesh.fsdp = fsdp, run.mesh.ep = ep, run.model.experts = 32, run.strategy.zero = 3;
    const spec::Layout hybrid = trainable_layout(run, 128);
    const Quotient small = quotient_of(run, hybrid, false);
    EXPECT_EQ(small.run.mesh.ep, experts) << "fsdp " << fsdp << ", ep " << ep;
    EXPECT_EQ(small.ranks, ranks) << "fsdp " << fsdp << ", ep " << ep;
    EXPECT_EQ(programs_of_run(run, spec::program_table(run, 1), hybrid, {0, 127}).size(), 2U);
  }
}

TEST(ExpertParallel, RefusesWhatDoesNotComposeYet_AndSaysHowToGoOn) {
  const auto refused = [](const char* setting, const std::function<void(spec::RunFile&)>& change) {
    spec::RunFile run = expert_run(2);
    change(run);
    EXPECT_EQ(not_supported(run).substr(0, std::string(setting).size()), setting);
    EXPECT_NE(not_supported(run).find(", or mesh.ep = 1"), std::string::npos);
  };
  refused(
      "strategy.secondary_shard = true beside mesh.ep = 2 is not in this version\n  fix: strategy.secondary_shard = "
      "false",
      [](auto& run) { run.strategy.secondary_shard = true; });
  refused("strategy.sync = \"server\" beside mesh.ep = 2", [](auto& run) { run.strategy.sync = "server"; });
  refused("strategy.schedule = \"priority\" beside mesh.ep = 2", [](auto& run) { run.strategy.schedule = "priority"; });
  refused("strategy.compression = \"bf16\" beside mesh.ep = 2", [](auto& run) { run.strategy.compression = "bf16"; });
  spec::RunFile run = expert_run(3);
  EXPECT_ERROR(spec::program_table(run, 1), Code::kBadConfig,
               "mesh.ep must divide model.experts: 8 % 3 = 2\n  fix: mesh.ep = 1");
  run = expert_run(2);
  run.model.kind = "gpt";
  EXPECT_ERROR(spec::program_table(run, 1), Code::kBadConfig,
               "model.kind = \"gpt\" has no experts, which ranks of mesh.ep = 2 would hold\n"
               "  fix: mesh.ep = 1, or model.kind = \"moe\"");
}

}  // namespace
}  // namespace herd::strategies
