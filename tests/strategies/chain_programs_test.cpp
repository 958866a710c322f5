// Steps of chains with branches: they prove in random layouts, fit their bounds of memory, and mutants of what goes
// over the borders of stages are found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "herd/base/error.h"
#include "herd/program/excerpts.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/program/simulate.h"
#include "herd/spec/stage_cut.h"
#include "tests/strategies/random_chain.h"
#include "tests/strategies/small_run.h"
#include "tests/support/temporary_folder.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;
using spec::TensorId;
using ::testing::ElementsAre;

using Steps = std::vector<Program>;

Steps steps_of(const testing::ChainRun& run, const spec::ModelTable& chain) {
  return compile_and_verify(run.run, chain, trainable_layout(run.run, run.ranks));
}

TEST(ChainPrograms, ProveInRandomLayouts_WithinTheirBoundsOfMemory) {
  const TemporaryFolder folder;
  int sums = 0, messages = 0, shared = 0;
  const int chains = 100, layouts = 6;
  std::set<int> indices = {181};  // sends on what it received before it receives again
  for (int index = 0; index < chains * layouts; index += one_in(5, 41)) indices.insert(index);
  for (const int index : indices) {
    std::mt19937 random(static_cast<uint32_t>(index));
    spec::ModelTable chain = testing::random_chain(random);
    const testing::ChainRun run = testing::random_layout(random, chain, (folder / "order").string());
    if (run.run.strategy.precision != "fp32") chain.compute_dtype = chain.gradient_dtype = DType::kBF16;
    SCOPED_TRACE("chain and layout " + std::to_string(index) + ": " + run.text());
    Steps steps;
    try {
      steps = steps_of(run, chain);
    } catch (const Error& error) {
      // Ranks in the middle of a pipeline may not share a group, which the first and the last block may read.
      if (error.code() == Code::kBadConfig &&
          std::string(error.what()).find("may share a group") != std::string::npos) {
        ++shared;
        continue;
      }
      ADD_FAILURE() << error.what();
      continue;
    }
    for (size_t rank = 0; rank < steps.size(); ++rank) {
      EXPECT_EQ(program::parse_program(to_text(steps[rank])), steps[rank]);
      const int64_t bound = peak_bound(steps[rank], Tier::kDevice, steps).bytes;
      EXPECT_GE(bound, in_order_peak(steps[rank], Tier::kDevice).bytes) << "rank " << rank;
      for (const Op& op : steps[rank].ops) {
        sums += op.kind == OpKind::kAdd ? 1 : 0;
        messages += op.kind == OpKind::kSend ? 1 : 0;
      }
    }
    for (const double flops_per_us : {1e2, 1e5}) {
      program::Calibration calibration;
      calibration.matmul_flops_per_us = flops_per_us;
      calibration.cores = 1 + index % 4;
      const size_t rank = random() % steps.size();
      EXPECT_GE(peak_bound(steps[rank], Tier::kDevice, steps).bytes,
                simulate(steps, chain, calibration, program::SharedMemoryCost{calibration}, rank).device_peak.bytes)
          << "rank " << rank;
    }
  }
  EXPECT_GT(sums, 10);
  EXPECT_GT(messages, 100);
  EXPECT_LT(shared, static_cast<int>(indices.size()) / 4);
}

// Makes six blocks. Block 0 gives two tensors, which blocks 1, 2, 4 and 5 read, and a mask, which blocks 2 and 4 read.
// Block 3 reads the second tensor of the batch.
spec::ModelTable branching_chain() {
  spec::ModelTable out;
  for (const char* name : {"image", "weights"})
    out.batch.push_back({.name = name, .bytes = 64, .differentiable = false});
  const std::vector<std::vector<TensorId>> inputs = {{{0, 0}},
                                                     {{1, 0}},
                                                     {{2, 0}, {1, 1}, {1, 2}},
                                                     {{3, 0}, {0, 1}},
                                                     {{4, 0}, {1, 1}, {1, 2}},
                                                     {{5, 0}, {1, 0}, {1, 1}}};
  for (size_t b = 0; b < inputs.size(); ++b) {
    spec::BlockShape block{.name = "block" + std::to_string(b), .groups = {static_cast<int>(b)}};
    block.layer = static_cast<int>(b);
    block.inputs = inputs[b];
    block.forward.matmul_flops = 1e6;
    if (b + 1 < inputs.size()) {
      block.outputs.assign(b == 0 ? 2 : 1, {.bytes = 100});
      if (b == 0) block.outputs.push_back({.bytes = 20, .differentiable = false});
      block.output_bytes = b == 0 ? 220 : 100;
      block.graph_bytes = 300;
    }
    out.blocks.push_back(std::move(block));
    out.groups.push_back({.name = "group" + std::to_string(b), .parameters = {{.name = "w", .sizes = {4}}}});
  }
  return out;
}

testing::ChainRun run_on_stages(int pp, const std::string& order) {
  testing::ChainRun out;
  out.run.mesh.pp = pp;
  out.run.train.batch = 3;
  out.run.train.micro_batch = 1;
  out.run.strategy.pipeline = order;
  out.ranks = pp;
  return out;
}

// Returns "x1.0 x1:1.0": what a rank sends or receives of micro-batch 0, in order.
std::string messages(const Program& step, OpKind kind) {
  std::string out;
  for (const Op& op : step.ops) {
    if (op.kind != kind || op.micro_batch != 0) continue;
    out += (out.empty() ? "" : " ") + value_name(step.mesh, kind == OpKind::kSend ? op.reads[0] : op.writes[0]);
  }
  return out;
}

TEST(ChainPrograms, SendEachTensorOnceToEachRank_AndTheSumOfItsGradientsBack) {
  const Steps steps = steps_of(run_on_stages(3, "1f1b"), branching_chain());  // blocks 0 1, 2 3, 4 5
  EXPECT_EQ(messages(steps[0], OpKind::kSend), "x1.0 x1:1.0 x1:2.0 x2.0");
  EXPECT_EQ(messages(steps[1], OpKind::kReceive), "x1.0 x1:1.0 x1:2.0 x2.0 dx1.0 dx1:1.0 dx4.0");
  EXPECT_EQ(messages(steps[1], OpKind::kSend), "x1.0 x1:1.0 x1:2.0 x4.0 dx1.0 dx1:1.0 dx2.0");
  EXPECT_EQ(messages(steps[2], OpKind::kSend), "dx1.0 dx1:1.0 dx4.0");
}

TEST(ChainPrograms, LoadOnEachStageWhatItsBlocksRead) {
  const Steps steps = steps_of(run_on_stages(3, "gpipe"), branching_chain());
  const auto loads = [](const Program& step) {
    std::string out;
    for (const Op& op : step.ops) {
      for (const Value& value : op.writes) {
        if (op.kind == OpKind::kLoad && op.micro_batch == 0) out += value_name(step.mesh, value) + " ";
      }
    }
    return out;
  };
  EXPECT_EQ(loads(steps[0]), "x0.0 ");
  EXPECT_EQ(loads(steps[1]), "x0:1.0 ");
  EXPECT_EQ(loads(steps[2]), "");
}

TEST(ChainPrograms, AddReceivedGradients_WhereLaterStagesOfTheRankHaveBegunThem) {
  // Rank 0 has the first stage and the last one, whose loss reads x1. Rank 1 has readers of tensors of block 0, too.
  const Steps steps = steps_of(run_on_stages(2, "zero_bubble_v"), branching_chain());
  const auto add = std::ranges::find(steps[0].ops, OpKind::kAdd, &Op::kind);
  ASSERT_NE(add, steps[0].ops.end());
  EXPECT_EQ(add->lane, program::Lane::kCompute);
  EXPECT_EQ(value_name(steps[0].mesh, add->reads[1]), value_name(steps[0].mesh, add->writes[0]) + ".partial(pp)");
  EXPECT_EQ(add->reads[0], add->writes[0]);
  EXPECT_EQ(std::ranges::count(steps[1].ops, OpKind::kAdd, &Op::kind), 0);
}

// Each pass and message of a chain on two to four ranks, broken one by one.
TEST(ChainMutants, AreFound) {
  const spec::ModelTable chain = branching_chain();
  int mutants = 0;
  std::map<std::string, int> by_kind;
  for (const auto& [order, pp] : std::vector<std::pair<std::string, int>>{
           {"1f1b", 2}, {"1f1b", 3}, {"gpipe", 4}, {"zero_bubble_h1", 3}, {"interleaved", 2}, {"zero_bubble_v", 2}}) {
    const testing::ChainRun run = run_on_stages(pp, order);
    const Steps steps = steps_of(run, chain);
    const program::Expectation expected = testing::expectation_of(run, chain);
    ASSERT_EQ(first_finding(steps, expected), "");
    const auto expect_found = [&](const char* what, const auto& change) {
      for (size_t rank = 0; rank < steps.size(); ++rank) {
        for (size_t i = 0; i < steps[rank].ops.size(); ++i) {
          Steps mutant = steps;
          if (!change(mutant, rank, i)) continue;
          ++by_kind[what];
          if (mutants++ % one_in(7, 37) != 0) continue;
          EXPECT_NE(first_finding(mutant, expected), "")
              << order << ", rank " << rank << ": " << what << ": " << describe(steps[rank], steps[rank].ops[i]);
        }
      }
    };
    // Finds the receive that takes what a send gives.
    const auto receive_of = [&](Steps& mutant, size_t rank, size_t i) -> Op* {
      const Op& send = mutant[rank].ops[i];
      for (Op& op : mutant[static_cast<size_t>(send.peer)].ops) {
        if (op.kind != OpKind::kReceive || op.peer != static_cast<int>(rank)) continue;
        if (op.writes[0] == send.reads[0] || op.writes[0] == placed(send.reads[0], op.writes[0].placement)) return &op;
      }
      return nullptr;
    };
    const auto without = [](Program& step, const Op& op) { step.ops.erase(std::ranges::find(step.ops, op)); };
    expect_found("a tensor at a border is left out", [&](Steps& mutant, size_t rank, size_t i) {
      const Op op = mutant[rank].ops[i];
      if (op.kind != OpKind::kSend) return false;
      const Op receive = *receive_of(mutant, rank, i);
      without(mutant[static_cast<size_t>(op.peer)], receive);
      without(mutant[rank], op);
      return true;
    });
    expect_found("a reader's gradient is dropped", [](Steps& mutant, size_t rank, size_t i) {
      Op& op = mutant[rank].ops[i];
      if (op.kind != OpKind::kBackward && op.kind != OpKind::kLoss) return false;
      // The pass reads and writes a sum that it no longer adds to.
      return std::erase_if(op.writes, [](const Value& v) { return v.kind == ValueKind::kActivationGradient; }) > 0;
    });
    expect_found("a later reader overwrites the sum", [](Steps& mutant, size_t rank, size_t i) {
      Op& op = mutant[rank].ops[i];
      if (op.kind != OpKind::kBackward && op.kind != OpKind::kLoss) return false;
      return std::erase_if(op.reads, [&](const Value& v) {
               return v.kind == ValueKind::kActivationGradient && std::ranges::count(op.writes, v) > 0;
             }) > 0;
    });
    expect_found("a branch is summed twice", [](Steps& mutant, size_t rank, size_t i) {
      const Op& op = mutant[rank].ops[i];
      if (op.kind != OpKind::kBackward && op.kind != OpKind::kAdd) return false;
      Op again = op;
      for (const Value& value : op.writes) {
        if (std::ranges::count(again.reads, value) == 0 && value.kind == ValueKind::kActivationGradient)
          again.reads.push_back(value);
      }
      mutant[rank].ops.insert(mutant[rank].ops.begin() + static_cast<long>(i) + 1, again);
      return true;
    });
    expect_found("the sum is another's", [](Steps& mutant, size_t rank, size_t i) {
      Op& op = mutant[rank].ops[i];
      if (op.kind != OpKind::kAdd) return false;
      op.reads[0] = op.reads[1];
      return true;
    });
    const auto both = [&](const auto& change) {
      return [&, change](Steps& mutant, size_t rank, size_t i) {
        Op& op = mutant[rank].ops[i];
        if (op.kind != OpKind::kSend) return false;
        Op& receive = *receive_of(mutant, rank, i);
        return change(mutant[rank], op.reads[0]) && change(mutant[static_cast<size_t>(op.peer)], receive.writes[0]);
      };
    };
    const auto of_another_micro_batch = [](const Program&, Value& value) {
      value.micro_batch = (value.micro_batch + 2) % 3;
      return true;
    };
    const auto another_number = [](const Program& step, Value& value) {
      const Value old = value;
      value.tensor = (value.tensor + 1) % 3;
      return value != old && step.values.contains(value);
    };
    const auto sender = [](const auto& change) {
      return [change](Steps& mutant, size_t rank, size_t i) {
        Op& op = mutant[rank].ops[i];
        return op.kind == OpKind::kSend && change(mutant[rank], op.reads[0]);
      };
    };
    expect_found("a border of another micro-batch is sent", sender(of_another_micro_batch));
    expect_found("a border of another micro-batch is sent and taken", both(of_another_micro_batch));
    expect_found("the wrong tensor is sent", sender(another_number));
    expect_found("the wrong tensor is sent and taken", both(another_number));
    expect_found("a tensor is loaded on the wrong stage", [&](Steps& mutant, size_t rank, size_t i) {
      const Op op = mutant[rank].ops[i];
      if (op.kind != OpKind::kLoad) return false;
      const size_t other = (rank + 1) % mutant.size();
      without(mutant[rank], op);
      mutant[other].ops.insert(mutant[other].ops.begin(), op);
      for (const Value& value : op.writes) mutant[other].values[value] = mutant[rank].values.at(value);
      return true;
    });
  }
  for (const auto& [what, count] : by_kind) EXPECT_GE(count, 3) << what;
  EXPECT_EQ(by_kind.size(), 10U);
}

TEST(ChainPrograms, RefuseGroupsThatStagesInTheMiddleShare) {
  spec::ModelTable chain = branching_chain();
  chain.blocks[3].groups = {1};
  const testing::ChainRun run = run_on_stages(3, "1f1b");
  try {
    steps_of(run, chain);
    FAIL() << "compiles";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_STREQ(error.what(),
                 "kBadConfig: parameter group \"group1\" is read by block \"block1\" of stage 0 and block \"block3\" "
                 "of stage 1: on "
                 "different ranks of a pipeline only blocks of the first and the last rank may share a group, got "
                 "mesh.pp = 3\n  fix: mesh.pp = 2");
  }
  chain.blocks[3].groups = {3};
  chain.blocks[5].groups = {0};  // of the first and the last stage
  chain.groups.pop_back();
  EXPECT_EQ(steps_of(run, chain).size(), 3U);
}

TEST(ChainPrograms, CountBlocksInRecompute) {
  spec::ModelTable chain = branching_chain();
  testing::ChainRun run = run_on_stages(1, "1f1b");
  run.run.model.layers = 100;           // is of another model
  run.run.strategy.recompute = "sqrt";  // of blocks 1 to 4: every 2
  const Program step = steps_of(run, chain)[0];
  std::vector<int> recomputed;
  for (const Op& op : step.ops) {
    if (op.kind == OpKind::kRecompute && op.micro_batch == 0) recomputed.push_back(op.block);
  }
  EXPECT_THAT(recomputed, ElementsAre(4, 2));  // each the last of its segment
}

TEST(ChainPrograms, HaveNoGradientBehindABlockThatTrainsNothing) {
  spec::ModelTable chain = branching_chain();
  chain.blocks[3].inputs = {{0, 1}};  // of the batch alone
  chain.blocks[3].groups = {}, chain.blocks[4].groups = {3}, chain.blocks[5].groups = {4};
  chain.groups.pop_back();
  const Program step = steps_of(run_on_stages(1, "1f1b"), chain)[0];
  EXPECT_FALSE(step.values.contains(program::activation_gradient({4, 0}, 0)));
  EXPECT_FALSE(step.values.contains(program::graph(3, 0)));
}

double square_sum(const std::vector<double>& weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight * weight;
  return sum;
}

// The largest weight of a stage and the sum of squares of all.
std::vector<double> cost_of(const spec::ModelTable& chain, const std::vector<int>& cut) {
  const std::vector<double> weights = testing::weights_of_stages(chain, cut);
  return {*std::ranges::max_element(weights), square_sum(weights)};
}

// Compares the costs of cuts, which are sums of the same numbers in another order.
bool is_less(const std::vector<double>& a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) > 1e-9 * std::abs(b[i])) return a[i] < b[i];
  }
  return false;
}

TEST(StageCut, OfAChainIsTheBestOfAllCuts) {
  int moved = 0;  // cuts that borders have changed
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    spec::ModelTable chain = testing::random_chain(random);
    const int stages = 2 + static_cast<int>(seed % 3);
    const std::vector<int> chosen = spec::stage_of_blocks(chain, stages);
    for (const std::vector<int>& cut : testing::all_cuts(chain.blocks.size(), stages))
      EXPECT_FALSE(is_less(cost_of(chain, cut), cost_of(chain, chosen))) << seed;
    chain.batch.clear();  // counts FLOP alone
    if (spec::stage_of_blocks(chain, stages) != chosen) ++moved;
  }
  EXPECT_GT(moved, 10);
}

// Stages that hold less the later they come, and bytes of their own for each block. Every third chain has blocks that
// take equally long, so that memory and borders tell cuts apart.
TEST(StageCut, WithinABudgetIsTheBestOfAllCuts) {
  int fitting = 0, none_fits = 0, slower = 0, smaller = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    spec::ModelTable chain = testing::random_chain(random);
    const int stages = 2 + static_cast<int>(seed % 3);
    if (seed % 3 == 0) {
      for (spec::BlockShape& block : chain.blocks) block.forward = block.backward = {.matmul_flops = 1e12};
    }
    std::vector<double> bytes;
    for (size_t b = 0; b < chain.blocks.size(); ++b) bytes.push_back(1.0 + static_cast<double>(random() % 9));
    spec::StageMemory memory;
    memory.held = [&](int stage, spec::BlockInterval blocks) {
      double sum = 0;
      for (size_t b = blocks.begin; b < blocks.end; ++b) sum += bytes[b];
      return sum * (1 + stages - stage);
    };
    const auto most_bytes = [&](const std::vector<int>& cut) {
      double most = 0;
      for (int stage = 0; stage < stages; ++stage)
        most = std::max(most, memory.held(stage, spec::blocks_of_stage(cut, stage)));
      return most;
    };
    const std::vector<std::vector<int>> cuts = testing::all_cuts(chain.blocks.size(), stages);
    const bool has_budget = seed % 4 != 0;
    std::vector<double> of_cuts;
    for (const std::vector<int>& cut : cuts) of_cuts.push_back(most_bytes(cut));
    std::ranges::sort(of_cuts);
    if (has_budget) memory.budget = seed % 8 == 1 ? of_cuts[0] - 1 : of_cuts[random() % (of_cuts.size() / 3 + 1)];
    const bool fits = std::ranges::any_of(cuts, [&](const auto& cut) { return most_bytes(cut) <= memory.budget; });
    // What stage_cut.h states: bytes where none fits, time, bytes, borders, likeness.
    const auto cost = [&](const std::vector<int>& cut) {
      double border_bytes = 0;
      for (const auto& [tensor, readers] : chain.readers()) {
        if (tensor.producer == 0) continue;
        const int borders = cut[static_cast<size_t>(readers.back())] - cut[static_cast<size_t>(tensor.producer) - 1];
        border_bytes += borders * static_cast<double>(chain.tensor_bytes(tensor)) *
                        (chain.has_gradient(tensor, chain.first_trained()) ? 2 : 1);
      }
      const std::vector<double> weights = testing::weights_of_stages(chain, cut);
      const double most = most_bytes(cut);
      return std::vector<double>{!fits ? most : static_cast<double>(most > memory.budget),
                                 *std::ranges::max_element(weights), most, border_bytes, square_sum(weights)};
    };
    const std::vector<int> chosen = spec::stage_of_blocks(chain, stages, memory);
    for (const std::vector<int>& cut : cuts) EXPECT_FALSE(is_less(cost(cut), cost(chosen))) << seed;
    const std::vector<int> fastest = spec::stage_of_blocks(chain, stages);
    fitting += has_budget && fits ? 1 : 0, none_fits += fits ? 0 : 1;
    slower += cost(fastest)[1] < cost(chosen)[1] * (1 - 1e-9) ? 1 : 0;
    smaller += !has_budget && most_bytes(chosen) < most_bytes(fastest) ? 1 : 0;
  }
  EXPECT_GT(fitting, 40);
  EXPECT_GT(none_fits, 3);
  EXPECT_GT(slower, 20);
  EXPECT_GT(smaller, 2);
}

// Of two ranks with two stages each, one has several blocks in a stage. It is over the budget until it gives one away.
TEST(StageCut, MovesBordersOfRanksWithTwoStagesUntilTheyFit) {
  const spec::ModelTable chain = branching_chain();
  const std::vector<int> ranks = {0, 1, 0, 1}, fastest = spec::stage_of_blocks(chain, ranks);
  const auto blocks_of = [](const std::vector<int>& cut, int rank) {
    return std::ranges::count_if(cut, [&](int stage) { return stage % 2 == rank; });
  };
  const int fuller = blocks_of(fastest, 0) >= 3 ? 0 : 1;
  std::vector<double> bytes;
  for (const int stage : fastest) bytes.push_back(stage % 2 == fuller ? 3 : 1);
  const double budget = 3.0 * static_cast<double>(blocks_of(fastest, fuller)) - 1;
  const auto sum = [&](int, spec::BlockInterval blocks) {
    return std::accumulate(bytes.begin() + static_cast<long>(blocks.begin),
                           bytes.begin() + static_cast<long>(blocks.end), 0.0);
  };
  const std::vector<int> chosen = spec::stage_of_blocks(chain, ranks, {sum, budget});
  EXPECT_NE(chosen, fastest);
  std::map<int, double> held;
  for (size_t b = 0; b < chosen.size(); ++b) held[chosen[b] % 2] += bytes[b];
  EXPECT_LE(std::max(held[0], held[1]), budget);
}

}  // namespace
}  // namespace herd::strategies
