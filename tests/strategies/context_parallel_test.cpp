// Context parallel as a rewrite: that its steps prove with everything else, what they send, and that no mutant of them
// proves.
#include "herd/strategies/context_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "herd/program/collective_message.h"
#include "herd/program/memory_bound.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/program/simulate.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Dimension;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;
using Steps = std::vector<Program>;

spec::RunFile context_run(int cp, int64_t micro_batches = 1, int data = 1, int64_t layers = 2, bool tied = true) {
  spec::RunFile run = small_run(layers, "none", data * micro_batches, tied);
  run.model.heads = 12, run.model.width = 24, run.model.kv_heads = 6;
  run.model.context = 7;  // tokens that ranks don't share evenly
  run.mesh.cp = cp;
  run.strategy.context = "all_to_all";
  run.strategy.bucket = 4096;
  return run;
}

// Heads that ranks don't divide are no matter to a ring.
spec::RunFile ring_run(int cp, int64_t micro_batches = 1, int data = 1, int64_t layers = 2) {
  spec::RunFile run = context_run(cp, micro_batches, data, layers);
  run.strategy.context = "ring";
  run.model.kv_heads = 2;
  return run;
}

TEST(ContextParallel, ProvesWithEveryTechnique) {
  int index = 0, proved = 0;
  for (const int cp : {2, 3, 4, 5, 6}) {
    for (const int pp : {1, 2, 3}) {
      for (const int dp : {1, 2}) {
        for (const int fsdp : {1, 2}) {
          for (const int zero : {0, 1, 2, 3}) {
            for (const int64_t micro_batches : {1, 3}) {
              for (const char* recompute : {"none", "full", "every:2"}) {
                const int ranks = cp * pp * dp * fsdp;
                if (ranks > 16 || (fsdp > 1 && zero == 0) || ++index % one_in(13, 97) != 0) continue;
                spec::RunFile run = context_run(cp, micro_batches, dp * fsdp, 3, index % 2 == 0);
                run.model.kv_heads = cp == 4 ? 4 : index % 3 == 0 ? 1 : 6;
                if (cp == 5 || proved % 2 == 1) run.strategy.context = "ring";
                run.mesh.pp = pp, run.mesh.fsdp = fsdp;
                run.strategy.zero = zero;
                run.strategy.recompute = recompute;
                if (pp > 1 && index % 4 == 0) run.strategy.pipeline = "zero_bubble_h1";
                run.strategy.keep_whole = zero == 3 ? index % 3 : 0;
                const Steps steps = steps_of(run, ranks);
                EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
                ++proved;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(proved, 10);
}

// Heads are cut by tensor ranks first, of which key heads may be copies.
spec::RunFile shared_run(int tp, int cp, const char* context, int64_t micro_batches = 1, int data = 1) {
  spec::RunFile run = context_run(cp, micro_batches, data);
  run.mesh.tp = tp;
  run.model.kv_heads = run.model.heads;
  run.strategy.context = context;
  return run;
}

TEST(ContextParallel, ProvesBesideTensorParallel) {
  int index = 0, proved = 0;
  for (const char* context : {"all_to_all", "ring"}) {
    for (const auto& [tp, cp] : {std::pair(2, 2), {2, 3}, {3, 2}, {3, 4}, {4, 3}}) {
      for (const int pp : {1, 2}) {
        for (const int dp : {1, 2}) {
          for (const int zero : {0, 1, 2, 3}) {
            for (const bool sequence : {true, false}) {
              const int ranks = tp * cp * pp * dp;
              if (ranks > 16 || ++index % one_in(11, 37) != 0) continue;
              spec::RunFile run = shared_run(tp, cp, context, 2, dp);
              run.model.kv_heads = index % 3 == 0 ? 1 : index % 3 == 1 ? 12 : tp;
              run.model.tie_embeddings = index % 2 == 0;
              run.mesh.pp = pp;
              run.strategy.zero = zero;
              run.strategy.sequence_parallel = sequence;
              run.strategy.keep_gathered = index % 4 != 0;
              run.strategy.recompute = index % 3 == 0 ? "full" : index % 3 == 1 ? "every:2" : "none";
              if (pp > 1 && index % 4 == 0) run.strategy.pipeline = "zero_bubble_h1";
              const Steps steps = steps_of(run, ranks);
              EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
              ++proved;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(proved, 2);
}

// The quotient has both axes.
TEST(ContextParallel, LargeMeshesBesideTensorRanksAreProvedByTheirQuotient) {
  for (const char* context : {"all_to_all", "ring"}) {
    spec::RunFile run = shared_run(2, 6, context, 4, 4);
    run.model.kv_heads = 1;
    const spec::ModelTable model = spec::program_table(run, 1);
    const spec::Layout layout = trainable_layout(run, 48);
    const Program step = programs_of_run(run, model, layout, {0})[0];
    const std::string text = quotient_text(run, layout, step);
    EXPECT_THAT(text, testing::HasSubstr("cp 2"));
    EXPECT_THAT(text, testing::HasSubstr("tp 2"));
  }
}

TEST(ContextParallel, IsReadByPeople_BesideTensorParallel) {
  testing_support::expect_golden("tests/strategies/golden/context_parallel_tp2_cp2.txt",
                                 to_text(steps_of(shared_run(2, 2, "all_to_all"), 4)[0]));
}

// Each rank exchanges, or passes on, the keys, values and queries of its part of the heads.
TEST(ContextParallel, SendsAPartOfItsEquationBesideTensorRanks) {
  for (const bool ring : {false, true}) {
    double sent[2] = {};
    for (const int tp : {1, 2}) {
      spec::RunFile run = shared_run(tp, 2, ring ? "ring" : "all_to_all", 3);
      run.model.context = 8, run.model.kv_heads = 4;
      const spec::ModelTable table = spec::program_table(run, 1);
      const Program step = steps_of(run, 2 * tp)[0];
      for (const Op& op : step.ops) {
        if (op.kind == OpKind::kAllToAll) sent[tp - 1] += static_cast<double>(message_bytes(step, op));
        if (!is_pass(op)) continue;
        for (const spec::InnerCollective& inner : table.blocks[static_cast<size_t>(op.block)].inner) {
          if (inner.axis == "cp")
            sent[tp - 1] += runs_of_inner_collective(inner, op) * static_cast<double>(inner.bytes);
        }
      }
    }
    EXPECT_GT(sent[0], 0);
    EXPECT_DOUBLE_EQ(sent[1], sent[0] / 2);
  }
}

TEST(ContextParallel, ProvesWhereWeightsAreFrozen) {
  for (const char* frozen : {"w*.weight", "h.0.*", "*.bias", "h.0.ln_1.* h.0.attn.qkv.*"}) {
    spec::RunFile run = context_run(2, 2, 2);
    run.model.frozen = frozen;
    run.strategy.zero = 3;
    steps_of(run, 4);
  }
}

TEST(ContextParallel, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/context_parallel_cp2.txt",
                                 to_text(steps_of(context_run(2, 1, 1, 1), 2)[0]));
}

TEST(ContextParallel, IsReadByPeople_InARing) {
  testing_support::expect_golden("tests/strategies/golden/context_parallel_ring_cp2.txt",
                                 to_text(steps_of(ring_run(2, 1, 1, 1), 2)[0]));
}

// Of a layer and a micro-batch a rank sends 2(P-1)/P T h_kv e forward, as much in backward and when it recomputes, and
// 2 T h_kv 4 of gradients.
TEST(ContextParallel, SendsWhatItsEquationSays_InARing) {
  for (const int cp : {2, 4, 5}) {
    for (const bool recomputes : {false, true}) {
      spec::RunFile run = ring_run(cp, 3);
      run.model.context = 40;
      if (recomputes) run.strategy.recompute = "full";
      const spec::ModelTable table = spec::program_table(run, 1);
      double sent = 0;
      const Program step = steps_of(run, cp)[0];
      for (const Op& op : step.ops) {
        if (!is_pass(op)) continue;
        for (const spec::InnerCollective& inner : table.blocks[static_cast<size_t>(op.block)].inner)
          sent += runs_of_inner_collective(inner, op) * static_cast<double>(inner.bytes) * (cp - 1) / cp;
      }
      const double keys = 24.0 / 12 * 2, passed = 2 * (cp - 1) * 40 * keys * 4 / cp;
      const double expected = 2 * 3 * ((recomputes ? 3 : 2) * passed + 2 * 40 * keys * 4);
      EXPECT_NEAR(sent, expected, 2 * 3);  // the table's bytes are whole
    }
  }
}

// Of a layer and a micro-batch a rank sends 4 (1 + kv/heads) T/P h e (P-1)/P, and half as much more with recompute.
TEST(ContextParallel, SendsWhatItsEquationSays) {
  for (const int cp : {2, 4}) {
    for (const bool recomputes : {false, true}) {
      spec::RunFile run = context_run(cp, 3);
      run.model.context = 8, run.model.kv_heads = 4;
      if (recomputes) run.strategy.recompute = "full";
      const Program step = steps_of(run, cp)[0];
      double sent = 0;
      for (const Op& op : step.ops)
        if (op.kind == OpKind::kAllToAll) sent += static_cast<double>(message_bytes(step, op)) * (cp - 1) / cp;
      const double of_layer = 4 * (1 + 4.0 / 12) * 8 / cp * 24 * 4 * (cp - 1) / cp;
      EXPECT_DOUBLE_EQ(sent, 2 * 3 * of_layer * (recomputes ? 1.5 : 1));
    }
  }
}

TEST(ContextParallel, HoldsAPartOfTheActivations) {
  spec::RunFile run = context_run(1, 2);
  run.model.context = 512, run.model.kv_heads = 4;
  const auto activations = [&](int cp) {
    run.mesh.cp = cp;
    const Steps steps = steps_of(run, cp);
    const auto peak = program::peak_bound(steps[0], program::Tier::kDevice, steps);
    return static_cast<double>(peak.by_kind.at(ValueKind::kGraph));
  };
  const double whole = activations(1);
  EXPECT_NEAR(activations(2), whole / 2, 0.1 * whole);
  EXPECT_NEAR(activations(4), whole / 4, 0.1 * whole);
}

TEST(ContextParallel, HoldsAPartOfTheActivations_InARing) {
  spec::RunFile run = ring_run(1);
  run.model.context = 512;
  const auto graphs = [&](int cp) {
    run.mesh.cp = cp;
    double bytes = 0;
    const Program step = steps_of(run, cp)[0];
    for (const auto& [value, info] : step.values)
      if (value.kind == ValueKind::kGraph) bytes += static_cast<double>(info.bytes);
    return bytes;
  };
  const double whole = graphs(1);
  EXPECT_NEAR(graphs(2), whole / 2, 0.1 * whole);
  EXPECT_NEAR(graphs(4), whole / 4, 0.1 * whole);
}

// By all-to-all a rank keeps what a ring keeps, and attention's output twice: of all tokens of its heads, from which
// attention's backward starts, and of its tokens of all heads, which the projection multiplies.
TEST(ContextParallel, HoldsOneOutputMoreThanARing_ByAllToAll) {
  for (const int64_t micro_batch : {1, 2}) {
    for (const int cp : {2, 3, 6}) {
      spec::RunFile run = context_run(cp);
      run.model.context = 24 * cp;
      const auto graphs = [&](const char* context) {
        run.strategy.context = context;
        int64_t bytes = 0;
        for (const spec::BlockShape& block : spec::program_table(run, micro_batch).blocks) bytes += block.graph_bytes;
        return bytes;
      };
      const int64_t output = micro_batch * 24 * run.model.width * 4;
      EXPECT_EQ(graphs("all_to_all"), graphs("ring") + run.model.layers * output) << cp << " ranks of " << micro_batch;
    }
  }
}

// Where one op stands, the timeline shows a span for the keys of each rank, the message that brings them before it, and
// the gradients behind it.
TEST(ContextParallel, StepsOfARingAreDrawn) {
  constexpr int cp = 3, passes = 2 * 2;  // layers and micro-batches
  const spec::RunFile run = ring_run(cp, 2);
  const program::Calibration calibration{.cores = 8};
  const program::Simulation simulation =
      simulate(steps_of(run, cp), spec::program_table(run, 1), calibration, program::SharedMemoryCost(calibration));
  const sim::Timeline& timeline = simulation.timeline;
  const auto spans_of = [&](const std::string& rank, const std::string& row, const std::string& text) {
    std::vector<sim::Span> spans;
    for (const sim::Span& span : timeline.spans) {
      const sim::Row& at = timeline.rows[static_cast<size_t>(span.row)];
      if (at.group == rank && at.name == row && span.name.find(text) != std::string::npos) spans.push_back(span);
    }
    return spans;
  };
  for (int rank = 0; rank < cp; ++rank) {
    const std::string name = "rank " + std::to_string(rank);
    EXPECT_EQ(spans_of(name, "ring of keys", "keys of cp").size(), size_t{2 * passes * (cp - 1)});
    EXPECT_EQ(spans_of(name, "ring of gradients", "gradients of keys of cp").size(), size_t{passes * cp});
    for (int owner = 0; owner < cp; ++owner) {
      const std::string keys = "keys of cp " + std::to_string(owner);
      const auto computed = spans_of(name, "compute", keys), passed = spans_of(name, "ring of keys", keys);
      ASSERT_EQ(computed.size(), size_t{2 * passes});
      ASSERT_EQ(passed.size(), owner == rank ? 0 : computed.size());
      for (size_t i = 0; i < passed.size(); ++i) EXPECT_LE(passed[i].end_us, computed[i].start_us);
    }
  }
}

TEST(ContextParallel, RefusesHeadsThatRanksDontDivide_AndSaysWhichDo) {
  spec::RunFile run = context_run(5);
  EXPECT_ERROR(
      spec::program_table(run, 1), Code::kBadConfig,
      "with strategy.context = \"all_to_all\" mesh.cp must divide model.heads, and divide model.kv_heads or be "
      "a multiple of it: 12 % 5 = 2\n  fix: mesh.cp = 3");
  run.mesh.cp = 4, run.model.kv_heads = 3;
  EXPECT_ERROR(
      spec::program_table(run, 1), Code::kBadConfig,
      "with strategy.context = \"all_to_all\" mesh.cp must divide model.heads, and divide model.kv_heads or be "
      "a multiple of it: 3 % 4 = 3\n  fix: mesh.cp = 3");
  run.mesh.tp = 2, run.model.kv_heads = 6;
  EXPECT_ERROR(spec::program_table(run, 1), Code::kBadConfig,
               "with strategy.context = \"all_to_all\" mesh.cp must divide model.heads / mesh.tp, and divide "
               "model.kv_heads / mesh.tp or be a multiple of it: 6 % 4 = 2\n"
               "  fix: mesh.cp = 3, or strategy.context = \"ring\"");
  run.strategy.context = "ring";
  EXPECT_NO_THROW(spec::program_table(run, 1));
}

// The same change to the programs of all ranks, or of the last one alone, at every op that it applies to.
int expect_found(const spec::RunFile& run, int ranks, const char* what, bool all_ranks,
                 const std::function<bool(Program&, size_t)>& change) {
  const Steps steps = steps_of(run, ranks);
  const program::Expectation expected = expectation_of(run, ranks);
  EXPECT_EQ(first_finding(steps, expected), "");
  int mutants = 0, drawn = 0;
  for (size_t i = 0; i < steps[0].ops.size(); ++i) {
    Steps mutant = steps;
    bool changed = false;
    for (size_t rank = all_ranks ? 0 : mutant.size() - 1; rank < mutant.size(); ++rank)
      changed = change(mutant[rank], i) || changed;
    if (!changed || drawn++ % one_in(1, 5) != 0) continue;
    ++mutants;
    EXPECT_NE(first_finding(mutant, expected), "") << what << ": " << describe(steps[0], steps[0].ops[i]);
  }
  return mutants;
}

bool exchanges(const Op& op) { return op.kind == OpKind::kAllToAll; }
bool sums_gradients(const Op& op) {
  return is_collective(op) && !op.writes.empty() && op.writes[0].kind == ValueKind::kGradient;
}

TEST(ContextParallel, MutantsAreFound) {
  for (const int zero : {0, 2}) {
    spec::RunFile run = context_run(2, 2, 2);
    run.strategy.zero = zero;
    const auto drop = [](Program& step, size_t i) {
      if (step.ops[i].axis == kNoAxis) return false;
      step.ops.erase(step.ops.begin() + static_cast<long>(i));
      return true;
    };
    const auto twice = [](Program& step, size_t i) {
      if (step.ops[i].axis == kNoAxis) return false;
      const Op copy = step.ops[i];
      step.ops.insert(step.ops.begin() + static_cast<long>(i), copy);
      return true;
    };
    EXPECT_GT(expect_found(run, 4, "a collective is missing", true, drop), 5);
    EXPECT_GT(expect_found(run, 4, "a collective is missing on one rank", false, drop), 5);
    EXPECT_GT(expect_found(run, 4, "a collective is there twice", true, twice), 5);
    for (const char* axis : {"dp", "cp"}) {
      const auto over = [&](const auto& applies) {
        return [&, axis](Program& step, size_t i) {
          const int other = step.mesh.find(axis);
          if (!applies(step.ops[i]) || step.ops[i].axis == other) return false;
          step.ops[i].axis = other;
          return true;
        };
      };
      // ZeRO's shards are of another axis then, too.
      EXPECT_GT(expect_found(run, 4, "gradients are summed over one axis alone", true, over(sums_gradients)), 0);
      const int exchanged = expect_found(run, 4, "an exchange along another axis", true, over(exchanges));
      EXPECT_GE(exchanged, axis == std::string("dp") ? 1 : 0);
    }
  }
}

// All ranks of the axis run each pass of a ring together: none leaves one out, runs it twice, alone, with the ranks of
// another axis, or while the others run that of another micro-batch.
TEST(ContextParallel, MutantsOfTheRingAreFound) {
  const spec::RunFile run = ring_run(2, 2, 2);
  const auto in_ring = [](const Op& op) { return is_pass(op) && op.axis != kNoAxis; };
  const auto drop = [&](Program& step, size_t i) {
    if (!in_ring(step.ops[i])) return false;
    step.ops.erase(step.ops.begin() + static_cast<long>(i));
    return true;
  };
  const auto twice = [&](Program& step, size_t i) {
    if (!in_ring(step.ops[i])) return false;
    const Op copy = step.ops[i];
    step.ops.insert(step.ops.begin() + static_cast<long>(i), copy);
    return true;
  };
  const auto along = [&](const char* axis) {
    return [&, axis](Program& step, size_t i) {
      if (!in_ring(step.ops[i])) return false;
      step.ops[i].axis = axis == nullptr ? kNoAxis : step.mesh.find(axis);
      return true;
    };
  };
  for (const bool all_ranks : {true, false}) {
    EXPECT_GT(expect_found(run, 4, "a pass is missing", all_ranks, drop), 3);
    EXPECT_GT(expect_found(run, 4, "a pass is there twice", all_ranks, twice), 3);
    EXPECT_GT(expect_found(run, 4, "a rank computes alone", all_ranks, along(nullptr)), 3);
    EXPECT_GT(expect_found(run, 4, "keys pass around data ranks", all_ranks, along("dp")), 3);
  }
  EXPECT_GT(expect_found(run, 4, "a block that needs no ring has one", true,
                         [&](Program& step, size_t i) {
                           Op& op = step.ops[i];
                           if (op.kind != OpKind::kForward || in_ring(op)) return false;
                           op.axis = step.mesh.dividing(Divided::kTokens);
                           return true;
                         }),
            3);
  EXPECT_GT(expect_found(run, 4, "ranks of a ring run passes of two micro-batches", false,
                         [&](Program& step, size_t i) {
                           if (!in_ring(step.ops[i])) return false;
                           step.ops[i].micro_batch = 1 - step.ops[i].micro_batch;
                           return true;
                         }),
            3);
}

// Where two axes cut heads, no op along one of them stands for one along the other, and no part for another.
TEST(ContextParallel, MutantsBesideTensorParallelAreFound) {
  const auto has_heads = [](const Program& step, const Value& value) {
    const int axis = step.mesh.dividing(Divided::kLayers);
    return is_activation_or_gradient(value) && value.placement.is_shard(axis) &&
           value.placement.dimension(axis) == Dimension::kHeads;
  };
  for (const char* context : {"all_to_all", "ring"}) {
    const spec::RunFile run = shared_run(2, 2, context);
    const auto drop = [](Program& step, size_t i) {
      if (step.ops[i].axis == kNoAxis || step.ops[i].block >= 0) return false;
      step.ops.erase(step.ops.begin() + static_cast<long>(i));
      return true;
    };
    const auto swapped = [](Program& step, size_t i) {
      Op& op = step.ops[i];
      const int layers = step.mesh.dividing(Divided::kLayers), tokens = step.mesh.dividing(Divided::kTokens);
      if (op.axis != layers && op.axis != tokens) return false;
      op.axis = op.axis == layers ? tokens : layers;
      return true;
    };
    const auto renamed = [&](const auto& placement_of) {
      return [&, placement_of](Program& step, size_t i) {
        bool changed = false;
        Op& op = step.ops[i];
        if (!is_pass(op)) return false;
        for (auto* side : {&op.reads, &op.writes}) {
          for (Value& value : *side) {
            if (!has_heads(step, value)) continue;
            const Value other = placed(value, placement_of(value.placement, step.mesh.dividing(Divided::kLayers)));
            step.values[other] = step.values.at(value);
            value = other;
            changed = true;
          }
        }
        return changed;
      };
    };
    EXPECT_GT(expect_found(run, 4, "a collective is missing", true, drop), 2) << context;
    EXPECT_GT(expect_found(run, 4, "a collective is missing on one rank", false, drop), 2) << context;
    EXPECT_GT(expect_found(run, 4, "a collective along the other axis", true, swapped), 2) << context;
    EXPECT_GT(expect_found(run, 4, "heads under the name of a whole", true,
                           renamed([](program::Placement at, int axis) { return at.whole_on(axis); })),
              2)
        << context;
    EXPECT_GT(expect_found(run, 4, "heads under the name of a sum", true,
                           renamed([](program::Placement at, int axis) { return at.partial_on(axis); })),
              2)
        << context;
    EXPECT_GT(expect_found(run, 4, "rows under the name of heads", true, renamed([](program::Placement at, int axis) {
                             return at.shard_on(axis, Dimension::kRows);
                           })),
              2)
        << context;
  }
}

// A step whose attention gives sums, as one without context ranks does, is no step of a chain that gives heads.
TEST(ContextParallel, ModelSaysWhichTensorsAreOfHeads) {
  const spec::RunFile run = shared_run(2, 2, "all_to_all");
  const Steps steps = steps_of(run, 4);
  program::Expectation expected = expectation_of(run, 4);
  EXPECT_EQ(first_finding(steps, expected), "");
  expected.block_gives_heads.assign(expected.block_gives_heads.size(), false);
  EXPECT_NE(first_finding(steps, expected), "");
}

TEST(ContextParallel, MutantsOfTheDimensionAreFound) {
  const spec::RunFile run = context_run(2, 1, 2);
  const auto other = [](const Value& value, int axis) {
    const bool by_rows = value.placement.dimension(axis) == Dimension::kRows;
    return placed(value, value.placement.shard_on(axis, by_rows ? Dimension::kHeads : Dimension::kRows));
  };
  const auto renamed = [](Program& step, const Value& from, const Value& to) {
    step.values[to] = step.values.at(from);
    return to;
  };
  EXPECT_GT(expect_found(run, 4, "an exchange that leaves the dimension as it was", true,
                         [&](Program& step, size_t i) {
                           Op& op = step.ops[i];
                           if (!exchanges(op)) return false;
                           op.writes[0] = renamed(step, op.writes[0], other(op.writes[0], op.axis));
                           return true;
                         }),
            3);
  EXPECT_GT(expect_found(run, 4, "a block that works along the wrong dimension", true,
                         [&](Program& step, size_t i) {
                           bool changed = false;
                           Op& op = step.ops[i];
                           if (op.kind != OpKind::kForward && op.kind != OpKind::kBackward) return false;
                           for (Value& value : op.reads) {
                             if (!is_activation_or_gradient(value) || value.index == 0) continue;
                             value = renamed(step, value, other(value, step.mesh.dividing(Divided::kTokens)));
                             changed = true;
                           }
                           return changed;
                         }),
            3);
  // Instead of the exchange, the block after it reads what the block before it gave, under the name that it needs.
  EXPECT_GT(expect_found(run, 4, "a part of the tokens under the name of a part of the heads", true,
                         [&](Program& step, size_t i) {
                           if (!exchanges(step.ops[i])) return false;
                           const Value from = step.ops[i].reads[0], to = step.ops[i].writes[0];
                           for (Op& op : step.ops) {
                             for (auto* side : {&op.reads, &op.writes})
                               for (Value& value : *side)
                                 if (value == from) value = to;
                           }
                           step.ops.erase(step.ops.begin() + static_cast<long>(i));
                           return true;
                         }),
            3);
}

}  // namespace
}  // namespace herd::strategies
