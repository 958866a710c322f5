// Optimizer states on the host as a rewrite: it proves with everything else, its staging is for two groups, and mutants
// of it are found.
#include "herd/strategies/host_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "herd/program/memory_bound.h"
#include "herd/program/op_dependencies.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/program/simulate.h"
#include "herd/spec/model_states.h"
#include "tests/golden.h"
#include "tests/strategies/op_mutants.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

TEST(HostStates, Prove_WithEveryTechnique) {
  int index = 0;
  for (const int dp : {1, 2, 4}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const int pp : {1, 2}) {
        for (const int tp : {1, 2}) {
          for (const char* precision : {"fp32", "bf16", "fp16"}) {
            for (const char* recompute : {"none", "full"}) {
              if (dp * pp * tp > 8 || (dp == 1 && zero > 0)) continue;
              if (++index % one_in(7, 67) != 0) continue;
              spec::RunFile run = offload_run(dp, zero, 3, index % 2 == 0 ? "states" : "nvme");
              if (index % 3 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
              run.mesh.pp = pp, run.mesh.tp = tp;
              run.strategy.precision = precision, run.strategy.recompute = recompute;
              if (dp == 4) run.mesh.fsdp = 2;
              const auto steps = steps_of(run, dp * pp * tp);
              EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
            }
          }
        }
      }
    }
  }
  for (const char* offload : {"states", "nvme"}) {
    spec::RunFile frozen = offload_run(2, 3, 3, offload);
    frozen.model.frozen = "h.1.*";
    steps_of(frozen, 2);
  }
}

TEST(HostStates, AreReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/host_states_zero2_dp2.txt",
                                 to_text(steps_of(offload_run(2, 2, 1), 2)[0]));
  testing_support::expect_golden("tests/strategies/golden/nvme_states_zero2_dp2.txt",
                                 to_text(steps_of(offload_run(2, 2, 1, "nvme"), 2)[0]));
}

// AdamW: 12 bytes a parameter stay on the host, and staging is two buffers of layers and those of what is much smaller
// or larger; the device holds weights and gradients.
TEST(HostStates, TakeTwelveBytesAParameterOfTheHost_AndStagingForTwoGroups) {
  for (const int64_t layers : {4, 12}) {
    const spec::RunFile run = offload_run(1, 0, layers);
    const auto model = spec::model_table(run, 1);
    const Program step = steps_of(run, 1)[0];
    int64_t staging = 0;
    std::map<int, int64_t> slots;
    for (const auto& [value, info] : step.values) {
      if (value.tier == Tier::kHost && info.slot >= 0) slots[info.slot] = std::max(slots[info.slot], info.bytes);
    }
    for (const auto& [slot, bytes] : slots) staging += bytes;
    const int64_t losses = step.micro_batches * 16, norms = 8 * static_cast<int64_t>(model.groups.size());
    EXPECT_EQ(in_order_peak(step, Tier::kHost).bytes, 12 * model.parameters() + staging + losses + 8 + norms);
    const int64_t layer = 4 * model.group_elements(2);
    EXPECT_LE(staging, 2 * layer + 4 * (model.group_elements(0) + 2 * model.group_elements(1)));
    EXPECT_TRUE(step.values.contains(program::weight(0)));
  }
}

// A gradient goes out, is stepped and comes back as a weight, each on its lane; the next forward waits for its own
// weights alone, which the order of the groups lets come first.
TEST(HostStates, CopyAndStepOnLanesOfTheirOwn_InTheOrderOfTheBlocks) {
  const Program step = steps_of(offload_run(1, 0), 1)[0];
  std::vector<int> evicted, stepped, fetched;
  for (const Op& op : step.ops) {
    if (op.kind == OpKind::kEvict) {
      EXPECT_EQ(op.lane, Lane::kCopyOut);
      evicted.push_back(op.reads[0].index);
    }
    if (op.kind == OpKind::kStep) {
      EXPECT_EQ(op.lane, Lane::kHost);
      stepped.push_back(op.reads[0].index);
    }
    if (op.kind == OpKind::kFetch) {
      EXPECT_EQ(op.lane, Lane::kCopyIn);
      fetched.push_back(op.writes[0].index);
    }
  }
  EXPECT_THAT(evicted, testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(stepped, evicted);
  EXPECT_EQ(fetched, evicted);
}

spec::RunFile without_norm(spec::RunFile run) {
  run.optimizer.clip = 0;
  run.health.check_finite = false;
  return run;
}

// Returns when the ops of a kind on a lane run in the predicted step, by the name of their spans.
std::map<std::string, sim::Span> spans_of(const program::Simulation& simulation, Lane lane) {
  std::map<std::string, sim::Span> out;
  for (const sim::Span& span : simulation.timeline.spans) {
    if (simulation.timeline.rows[static_cast<size_t>(span.row)].name == lane_name(lane)) out[span.name] = span;
  }
  return out;
}

program::Simulation simulated(const spec::RunFile& run, const program::Calibration& machine) {
  return simulate(steps_of(run, 1), spec::program_table(run, 1), machine, program::SharedMemoryCost(machine));
}

// Without a norm of all gradients each group is updated once its own gradient is there, so from the last layer down to
// the tied embedding, and all updates but the last ones run while earlier blocks still compute.
TEST(HostStates, UpdateBesideBackward_WhereNoNormWaitsForAllGradients) {
  for (const char* offload : {"states", "nvme"}) {
    spec::RunFile run = without_norm(offload_run(1, 0, 4, offload));
    run.model.width = 64, run.model.context = 512;  // a layer takes longer to compute than to update
    run.strategy.bucket = 25 << 20;                 // groups are updated as one
    const Program step = steps_of(run, 1)[0];
    std::vector<int> stepped;
    int before_last_backward = 0, last_backward = 0;
    for (int i = 0; i < static_cast<int>(step.ops.size()); ++i) {
      if (step.ops[static_cast<size_t>(i)].kind == OpKind::kBackward) last_backward = i;
    }
    for (int i = 0; i < static_cast<int>(step.ops.size()); ++i) {
      const Op& op = step.ops[static_cast<size_t>(i)];
      if (op.kind != OpKind::kStep) continue;
      stepped.push_back(op.writes[0].index);
      before_last_backward += i < last_backward;
    }
    EXPECT_THAT(stepped, testing::ElementsAre(6, 5, 4, 3, 2, 0, 1)) << offload;
    EXPECT_EQ(before_last_backward, 5);
    program::Calibration machine;
    machine.cores = 4;
    machine.nvme_bytes_per_us = 8'000;
    const program::Simulation simulation = simulated(run, machine);
    const auto passes = spans_of(simulation, Lane::kCompute), updates = spans_of(simulation, Lane::kHost);
    const sim::Span& last = passes.at("backward block0 mb1");
    for (const int group : {6, 5, 4, 3}) EXPECT_LT(updates.at("step w" + std::to_string(group)).end_us, last.end_us);

    spec::RunFile clipped = run;
    clipped.optimizer.clip = 1;
    const program::Simulation with_barrier = simulated(clipped, machine);
    const double barrier = spans_of(with_barrier, Lane::kCompute).at("backward block0 mb1").end_us;
    for (const auto& [name, span] : spans_of(with_barrier, Lane::kHost)) EXPECT_GE(span.start_us, barrier) << name;
    EXPECT_LT(simulation.step_us, with_barrier.step_us);
  }
}

// The link that a run emulates is that of its simulation: a step with more to copy than to compute takes as long as its
// copies, in each direction on its own.
TEST(HostStates, CopyAtTheRateOfTheLink) {
  const spec::RunFile run = without_norm(offload_run(1, 0, 4));
  const double bytes = 4.0 * static_cast<double>(spec::model_table(run, 1).parameters());
  program::Calibration machine;
  machine.cores = 8;
  const double free_us = simulated(run, machine).step_us;
  for (const double rate : {0.1, 1.0}) {
    machine.emulated_link_bytes_per_us = rate;
    const double copies_us = simulated(run, machine).step_us;
    EXPECT_GE(copies_us, bytes / rate);
    EXPECT_LE(copies_us, 2 * bytes / rate + free_us);
  }
  machine.emulated_link_bytes_per_us = 1e9;  // faster than memory
  EXPECT_DOUBLE_EQ(simulated(run, machine).step_us, free_us);
}

// Files hold the states, and with fp32 the weights; the host has room for two groups; the device is the same.
TEST(HostStates, TakeFilesForStates_AndTheHostForTwoGroups) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const int64_t layers : {4, 12}) {
      spec::RunFile run = offload_run(1, 0, layers, "nvme");
      run.model.width = 64, run.strategy.bucket = 25 << 20;
      run.strategy.precision = precision;
      const spec::ModelTable model = spec::program_table(run, 1);
      const Program step = steps_of(run, 1)[0];
      const bool is_fp32 = run.strategy.precision == "fp32";
      int64_t file = 0;
      for (int g = 0; g < static_cast<int>(model.groups.size()); ++g)
        file += spec::nvme_bytes(model.group_elements(g) * (is_fp32 ? 8 : 12)) +
                (is_fp32 ? spec::nvme_bytes(model.group_elements(g) * 4) : 0);
      EXPECT_EQ(in_order_peak(step, Tier::kNvme).bytes, file);
      EXPECT_EQ(peak_bound(step, Tier::kNvme).bytes, file);
      for (const OpKind way : {OpKind::kFetch, OpKind::kEvict}) {  // each way once a step
        int64_t moved = 0;
        for (const Op& op : step.ops) {
          if (op.lane != Lane::kIo || op.kind != way) continue;
          for (const Value& value : op.reads) moved += step.values.at(value).bytes;
        }
        EXPECT_EQ(moved, file) << precision << ", " << layers << " layers";
      }
      const int64_t host = peak_bound(step, Tier::kHost).bytes;
      EXPECT_LE(host, 2 * 20 * model.group_elements(2) + 20 * (model.group_elements(0) + 2 * model.group_elements(1)) +
                          40 * 4096);
      run.strategy.offload = "states";
      EXPECT_EQ(in_order_peak(step, Tier::kDevice).bytes, in_order_peak(steps_of(run, 1)[0], Tier::kDevice).bytes);
    }
  }
}

// The states of the next group are read while a group is updated, and the first ones of a step before its gradients.
TEST(HostStates, ReadFilesAhead) {
  const Program step = steps_of(offload_run(1, 0, 4, "nvme"), 1)[0];
  std::vector<std::string> order;
  for (const Op& op : step.ops) {
    if (op.lane == Lane::kIo && op.kind != OpKind::kRelease)
      order.push_back(std::string(op_name(op.kind)) + std::to_string(op.reads[0].index));
  }
  EXPECT_THAT(order, testing::ElementsAre("fetch0", "fetch1", "evict0", "fetch2", "evict1", "fetch3", "evict2",
                                          "fetch4", "evict3", "fetch5", "evict4", "fetch6", "evict5", "evict6"));
  const auto waits = program::dependencies(step);
  for (size_t i = 0, fetches = 0; i < step.ops.size() && fetches < 2; ++i) {
    if (step.ops[i].lane != Lane::kIo || step.ops[i].kind != OpKind::kFetch) continue;
    ++fetches;
    for (const program::Dependency& dependency : waits[i]) EXPECT_EQ(dependency.distance, 1) << i;
  }
}

// Of groups that are longer than a bucket, the host has buffers for two pieces of one; the files have whole blocks of
// every piece, and each is read and written once.
TEST(HostStates, UpdateLongGroupsInPieces_WithBuffersForTwo) {
  constexpr int64_t kBlock = 4096, kPiece = 2 * kBlock;  // elements
  const auto blocks = [](int64_t elements) { return (elements + kBlock - 1) / kBlock * kBlock; };
  for (const char* precision : {"fp32", "bf16"}) {
    for (const bool delayed : {false, true}) {
      spec::RunFile run = offload_run(1, 0, 4, "nvme");
      run.model.width = 64;
      run.strategy.precision = precision, run.strategy.delayed_update = delayed;
      const bool is_fp32 = run.strategy.precision == "fp32";
      run.strategy.bucket = kPiece * (is_fp32 ? 4 : 2);
      const spec::ModelTable model = spec::program_table(run, 1);
      const Program step = steps_of(run, 1)[0];
      EXPECT_EQ(program::parse_program(to_text(step)), step);
      int64_t file = 0;
      for (int g = 0; g < static_cast<int>(model.groups.size()); ++g) {
        const int64_t elements = model.group_elements(g), states = is_fp32 ? 8 : 12, weights = is_fp32 ? 4 : 0;
        file += elements > kPiece
                    ? blocks(elements) * (states + weights)
                    : spec::nvme_bytes(elements * states) + (is_fp32 ? spec::nvme_bytes(elements * weights) : 0);
      }
      EXPECT_EQ(peak_bound(step, Tier::kNvme).bytes, file);
      int64_t read = 0, written = 0, copied = 0;
      for (const Op& op : step.ops) {
        if (op.lane == Lane::kIo && op.kind != OpKind::kRelease)
          for (const Value& value : op.reads)
            (op.kind == OpKind::kFetch ? read : written) += step.values.at(value).bytes;
        if (op.lane == Lane::kCopyOut && op.kind == OpKind::kEvict) copied += copied_bytes(step, op);
      }
      EXPECT_EQ(written, file);
      EXPECT_EQ(copied, model.parameters() * (is_fp32 ? 4 : 2));
      if (delayed) continue;  // gradients of all groups wait on the host, and weights are read again for their copies
      EXPECT_EQ(read, file);
      const int64_t a_piece = kPiece * (is_fp32 ? 4 + 4 + 8 : 2 + 2 + 12);
      EXPECT_LE(peak_bound(step, Tier::kHost).bytes, 2 * a_piece + 16 * kBlock);
      run.strategy.offload = "states";
      EXPECT_EQ(in_order_peak(step, Tier::kDevice).bytes, in_order_peak(steps_of(run, 1)[0], Tier::kDevice).bytes);
    }
  }
}

// A piece is read while the one before is updated, and written while the next one is.
TEST(HostStates, StreamPiecesThroughTheHost) {
  spec::RunFile run = offload_run(1, 0, 2, "nvme");
  run.model.width = 64, run.model.context = 256;
  run.strategy.bucket = 4 * 2 * 4096;
  program::Calibration machine;
  machine.cores = 4;
  machine.host_link_bytes_per_us = 1e5;
  machine.update_us_per_element = 1e-2;
  machine.op_overhead_us = 1;
  machine.nvme_bytes_per_us = 12 / machine.update_us_per_element;  // as long to read as to update, and to write
  const auto step_us = [&](int64_t bucket) {
    run.strategy.bucket = bucket;
    return simulate(steps_of(run, 1), spec::program_table(run, 1), machine, program::SharedMemoryCost(machine)).step_us;
  };
  EXPECT_LT(step_us(4 * 2 * 4096), 1.08 * step_us(25 << 20));  // the last piece of a layer has whole blocks
  const Program step = steps_of(run, 1)[0];
  EXPECT_GT(std::ranges::count_if(step.ops, [](const Op& op) { return op.kind == OpKind::kStep; }), 5);
}

TEST(HostStates, ProveInPieces_WithEveryTechnique) {
  int index = 0;
  for (const auto& [dp, zero] : {std::pair(1, 0), {2, 1}, {2, 2}, {2, 3}, {4, 3}}) {
    for (const auto& [pp, tp] : {std::pair(1, 1), {2, 1}, {1, 2}}) {
      for (const char* precision : {"fp32", "bf16", "fp16"}) {
        for (const bool with_norm : {true, false}) {
          if (dp * pp * tp > 8 || ++index % one_in(4, 11) != 0) continue;
          spec::RunFile run = offload_run(dp, zero, 2, "nvme");
          run.model.width = 64;
          if (!with_norm) run = without_norm(run);
          run.mesh.pp = pp, run.mesh.tp = tp;
          run.strategy.precision = precision;
          run.strategy.delayed_update = index % 3 == 0 && run.strategy.precision != "fp16";
          if (zero == 3 && index % 2 == 0) run.strategy.gather_codec = "int8";
          if (dp == 4) run.mesh.fsdp = 2;
          const auto steps = steps_of(run, dp * pp * tp);
          const auto is_piece = [](const auto& entry) {
            return entry.first.kind == ValueKind::kState && entry.first.tensor > 1;
          };
          EXPECT_TRUE(std::ranges::any_of(steps[0].values, is_piece)) << index;
        }
      }
    }
  }
}

TEST(HostStates, MutantsOfPiecesAreFound) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const int zero : {1, 3}) {
      spec::RunFile run = offload_run(2, zero, 1, "nvme");
      run.model.width = 64, run.strategy.precision = precision;
      run.strategy.bucket = 4 * 8192;
      const auto steps = steps_of(run, 2);
      const program::Expectation expected = expectation_of(run, 2);
      ASSERT_EQ(first_finding(steps, expected), "");
      OpMutants mutants(steps, expected, [](const Op& op) {
        const auto is_piece = [](const Value& value) {
          return value.kind != ValueKind::kActivation && value.tensor > 0;
        };
        return op.kind != OpKind::kRelease &&
               (std::ranges::any_of(op.reads, is_piece) || std::ranges::any_of(op.writes, is_piece));
      });
      const auto in_another = [](std::vector<Value>& values, ValueKind kind) {
        bool changes = false;
        for (Value& value : values) {
          if (value.tensor == 0 || value.kind != kind) continue;
          value.tensor = value.tensor == 1 ? 2 : 1;
          changes = true;
        }
        return changes;
      };
      mutants.expect_found("left out", [](std::vector<Op>& ops, size_t i) {
        ops.erase(ops.begin() + static_cast<long>(i));
        return true;
      });
      for (const ValueKind kind : {ValueKind::kWeight, ValueKind::kGradient, ValueKind::kState}) {
        mutants.expect_found("reads another piece",
                             [&](std::vector<Op>& ops, size_t i) { return in_another(ops[i].reads, kind); });
        mutants.expect_found("writes another piece",
                             [&](std::vector<Op>& ops, size_t i) { return in_another(ops[i].writes, kind); });
      }
      mutants.expect_found("leaves out the other pieces", [](std::vector<Op>& ops, size_t i) {
        if (ops[i].lane != Lane::kCopyIn) return false;
        ops[i].reads.resize(1);
        return true;
      });
      mutants.expect_found("after its use", [](std::vector<Op>& ops, size_t i) {
        return ops[i].kind != OpKind::kStep && ops[i].lane != Lane::kCopyIn && ops[i].kind != OpKind::kEvict &&
               move_after_use(ops, i);
      });
      EXPECT_GT(mutants.count(), 30);
    }
  }
}

TEST(HostStates, MutantsOfFilesAreFound) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const bool with_norm : {true, false}) {
      spec::RunFile run = offload_run(2, 1, 3, "nvme");
      run.strategy.precision = precision;
      if (!with_norm) run = without_norm(run);
      const auto steps = steps_of(run, 2);
      program::Expectation expected = expectation_of(run, 2);
      expected.proof.clipped = with_norm;
      ASSERT_EQ(first_finding(steps, expected), "");
      OpMutants mutants(steps, expected,
                        [](const Op& op) { return op.lane == Lane::kIo && op.kind != OpKind::kRelease; });
      mutants.expect_found("left out", [](std::vector<Op>& ops, size_t i) {
        ops.erase(ops.begin() + static_cast<long>(i));
        return true;
      });
      mutants.expect_found("of another group", [](std::vector<Op>& ops, size_t i) {
        for (Value& value : ops[i].writes) value.index = value.index == 0 ? 1 : 0;
        return true;
      });
      mutants.expect_found("the other way", [](std::vector<Op>& ops, size_t i) {
        ops[i].kind = ops[i].kind == OpKind::kEvict ? OpKind::kFetch : OpKind::kEvict;
        return true;
      });
      // A store before the update keeps the older version; a fetch after it reads too late.
      mutants.expect_found("moved over the update", [](std::vector<Op>& ops, size_t i) {
        const int group = ops[i].reads[0].index;
        const auto step = std::find_if(ops.begin(), ops.end(), [&](const Op& op) {
          return op.kind == OpKind::kStep && op.writes[0].index == group;
        });
        const auto op = ops.begin() + static_cast<long>(i);
        if (op < step)
          std::rotate(op, op + 1, step + 1);
        else
          std::rotate(step, op, op + 1);
        return true;
      });
      EXPECT_GT(mutants.count(), 40);
    }
  }
}

TEST(HostStates, MutantsAreFound) {
  for (const int zero : {0, 1, 3}) {
    const spec::RunFile run = offload_run(2, zero);
    const auto steps = steps_of(run, 2);
    const program::Expectation expected = expectation_of(run, 2);
    ASSERT_EQ(first_finding(steps, expected), "");
    OpMutants mutants(steps, expected, [](const Op& op) {
      return (op.kind == OpKind::kEvict || op.kind == OpKind::kFetch || op.lane == Lane::kHost) &&
             op.kind != OpKind::kRelease;
    });
    mutants.expect_found("left out", [](std::vector<Op>& ops, size_t i) {
      ops.erase(ops.begin() + static_cast<long>(i));
      return true;
    });
    mutants.expect_found("twice", [](std::vector<Op>& ops, size_t i) {
      const Op copy = ops[i];
      ops.insert(ops.begin() + static_cast<long>(i), copy);
      return true;
    });
    mutants.expect_found("of another group", [](std::vector<Op>& ops, size_t i) {
      Value& value = ops[i].kind == OpKind::kFetch ? ops[i].reads[0] : ops[i].writes[0];
      value.index = value.index == 0 ? 1 : 0;
      return true;
    });
    mutants.expect_found("the other way", [](std::vector<Op>& ops, size_t i) {
      if (ops[i].kind != OpKind::kEvict && ops[i].kind != OpKind::kFetch) return false;
      ops[i].kind = ops[i].kind == OpKind::kEvict ? OpKind::kFetch : OpKind::kEvict;
      return true;
    });
    EXPECT_GT(mutants.count(), 50);
  }
}

}  // namespace
}  // namespace herd::strategies
