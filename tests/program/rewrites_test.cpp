// Text, hazards, lifetimes, slots and bounds of small programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/program/lifetimes.h"
#include "herd/program/memory_bound.h"
#include "herd/program/op_dependencies.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/program/slots.h"
#include "tests/program/combinations.h"

namespace herd::program::testing {
namespace {

Op op(OpKind kind, Lane lane, std::vector<Value> reads, std::vector<Value> writes) {
  return {.kind = kind, .lane = lane, .reads = std::move(reads), .writes = std::move(writes)};
}

constexpr Placement kShard = kWhole.shard_on(0);

Program gather_before_use() {  // two weights, each gathered, used once
  Program step;
  for (int g = 0; g < 2; ++g) {
    step.values[weight(g)] = {.bytes = 100};
    step.values[weight(g, kShard)] = {.bytes = 50, .persistent = true};
    step.ops.push_back(op(OpKind::kAllGather, Lane::kGather, {weight(g, kShard)}, {weight(g)}));
    step.ops.push_back(op(OpKind::kForward, Lane::kCompute, {weight(g)}, {}));
    step.ops.back().block = g;
  }
  return step;
}

TEST(Names, OfEveryValueComeBack) {
  const Mesh mesh = {.world_size = 8, .axes = {{"dp", {{4, 2}}}, {"pp{0,3}", {{1, 4}}, {0, 3}}}};
  const std::vector<std::pair<Value, std::string>> names = {
      {weight(7), "w7"},
      {weight(7, kShard), "w7.shard(dp)"},
      {placed(activation(3, 0), kWhole.partial_on(1)), "x3.0.partial(pp{0,3})"},
      {placed(activation(3, 0), kShard.partial_on(1)), "x3.0.shard(dp).partial(pp{0,3})"},
      {placed(activation(3, 0), kShard.shard_on(1)), "x3.0.shard(dp).shard(pp{0,3})"},
      {in_tier(gradient(0), Tier::kHost), "g0.host"},
      {in_tier(weight(0, kShard), Tier::kNvme), "w0.shard(dp).nvme"},
      {state(12), "s12"},
      {activation_gradient(4, 11), "dx4.11"},
      {graph(0, 2), "graph0.2"},
      {pending(1, 2), "pending1.2"},
      {target(5), "target.5"},
      {loss(0), "loss.0"},
      {in_tier(loss(0), Tier::kDevice), "loss.0.device"},
      {norm(3), "norm3"},
      {factor(), "factor"},
      {cache(3), "cache3"},
      {logits(0), "logits.0"}};
  for (const auto& [value, name] : names) {
    EXPECT_EQ(value_name(mesh, value), name);
    EXPECT_EQ(parse_value(mesh, name), value) << name;
  }
  for (const char* wrong : {"",
                            "w",
                            "w7.half",
                            "w07",
                            "x3",
                            "x.3",
                            "w-1",
                            "factor1",
                            "loss",
                            "w99999999999",
                            "x1.1.1",
                            "q1",
                            "w7.shard",
                            "w7.shard(tp)",
                            "w7.shard(dp",
                            "w7.shard(dp).shard(dp)",
                            "x3.0.partial(pp{0,3}).shard(dp)",
                            "w7.host.shard(dp)",
                            "w7.device",
                            "w7.",
                            "w7.shard()"}) {
    EXPECT_EQ(parse_value(mesh, wrong), std::nullopt) << wrong;
  }
}

TEST(Placements, ChangeAlongOneAxis_AndAnAxisOfOneRankCutsNothing) {
  const Placement both = kWhole.shard_on(2).partial_on(5);
  EXPECT_TRUE(both.is_shard(2) && both.is_partial(5) && !both.is_shard(5) && !both.is_partial(2));
  EXPECT_EQ(both.whole_on(5), kWhole.shard_on(2));
  EXPECT_EQ(both.shard_on(5), kWhole.shard_on(2).shard_on(5));
  EXPECT_EQ(both.partial_on(2), kWhole.partial_on(2).partial_on(5));
  EXPECT_TRUE(kWhole.shard_on(kNoAxis).is_whole() && !both.is_whole());
}

TEST(Dependencies, AreTheHazards_AcrossTheEndOfTheLoop_AndWithinALane) {
  const auto waits = dependencies(gather_before_use());
  using Waits = std::vector<Dependency>;
  EXPECT_EQ(waits[0], (Waits{{0, 1}, {1, 1}}));  // may not overwrite w0 before the last step has used it
  EXPECT_EQ(waits[1], (Waits{{0, 0}}));
  EXPECT_EQ(waits[2], (Waits{{2, 1}, {3, 1}}));
  EXPECT_EQ(waits[3], (Waits{{2, 0}}));
}

TEST(Dependencies, HoldBetweenValuesOfOneSlot) {
  Program step = gather_before_use();
  step.values[weight(0)].slot = step.values[weight(1)].slot = 4;
  const auto waits = dependencies(step);
  using Waits = std::vector<Dependency>;
  EXPECT_EQ(waits[0], (Waits{{2, 1}, {3, 1}}));  // w1 of the step before stands in the slot
  EXPECT_EQ(waits[2], (Waits{{0, 0}, {1, 0}}));
}

// The step that writes them again waits for both releases: neither is over because the other is.
TEST(Dependencies, ListEveryRelease_AmongOperationsThatALaneOnlyStarts) {
  Program step;
  const Value a = activation(0, 0), b = activation(1, 0);
  for (const Value& value : {a, b}) step.values[value] = {.bytes = 8};
  step.ops.push_back(op(OpKind::kForward, Lane::kCompute, {}, {a, b}));
  step.ops.push_back(op(OpKind::kSend, Lane::kPeerOut, {a}, {}));
  step.ops.push_back(op(OpKind::kSend, Lane::kPeerOut, {b}, {}));
  step = add_releases(std::move(step));
  ASSERT_EQ(step.ops.size(), 5u);
  EXPECT_TRUE(is_deferred_release(step.ops[2]) && is_deferred_release(step.ops[4]));
  using Waits = std::vector<Dependency>;
  EXPECT_EQ(dependencies(step)[0], (Waits{{2, 1}, {4, 1}}));
  for (Op& one : step.ops) one.lane = Lane::kCompute;
  EXPECT_FALSE(is_deferred_release(step.ops[2]));
  EXPECT_EQ(dependencies(step)[0], (Waits{{4, 1}}));
}

// Whatever a program text says of the other rank, since dependencies are asked for before that is checked.
TEST(Dependencies, AreThoseOfMessagesToRanksThatDoNotExist) {
  Program step;
  step.mesh = {.world_size = 4, .axes = {{"pp{0,1}", {{1 << 20, 1 << 20}}, {0, 1}}}};
  const Value a = activation(0, 0);
  step.values[a] = {.bytes = 8};
  step.ops.push_back(op(OpKind::kForward, Lane::kCompute, {}, {a}));
  step.ops.push_back(op(OpKind::kSend, Lane::kPeerOut, {a}, {}));
  step.ops.back().axis = 0, step.ops.back().peer = 1 << 19;
  EXPECT_EQ(dependencies(step)[0], (std::vector<Dependency>{{0, 1}, {1, 1}}));
}

TEST(Lifetimes, EndAfterTheLastReadBeforeTheNextWrite) {
  const Program step = add_releases(gather_before_use());
  ASSERT_EQ(step.ops.size(), 6u);
  EXPECT_EQ(step.ops[2].kind, OpKind::kRelease);
  EXPECT_EQ(step.ops[2].writes, std::vector<Value>{weight(0)});
  EXPECT_EQ(step.ops[2].lane, Lane::kCompute);
  EXPECT_EQ(step.ops[5].writes, std::vector<Value>{weight(1)});
  EXPECT_EQ(add_releases(step), step);
}

TEST(Slots, CycleThroughThePoolOfGatherBuffers) {
  const Compiled compiled = compile({.layers = 4, .dp = 2, .zero = 3});
  const Program& step = compiled.programs[0];
  std::set<int> gathered, gradients;
  for (const auto& [value, info] : step.values) {
    if (value.kind == ValueKind::kWeight && !info.persistent) gathered.insert(info.slot);
    if (value.kind == ValueKind::kGradient && value.placement.is_whole()) gradients.insert(info.slot);
  }
  EXPECT_EQ(gathered.size(), 3u);  // two that blocks take in turn, one for embedding and loss block, which are smaller
  EXPECT_FALSE(gathered.contains(-1));
  EXPECT_EQ(gradients.size(), 3u);
  std::set<int> whole;
  const Compiled zero1 = compile({.layers = 4, .dp = 2, .zero = 1});
  for (const auto& [value, info] : zero1.programs[0].values) {
    if (value.kind == ValueKind::kGradient && value.placement.is_whole()) whole.insert(info.slot);
  }
  EXPECT_EQ(whole.size(), 6u);
}

TEST(Peak, CountsTheSameInOrder_AndNoLessInAnyOrder) {
  Program step = add_releases(gather_before_use());
  EXPECT_EQ(in_order_peak(step, Tier::kDevice).bytes, 200);  // two shards and one whole
  EXPECT_EQ(peak_bound(step, Tier::kDevice).bytes, 300);     // the second gather may run ahead
  step = assign_slots(step, {.gather_buffers = 1});
  EXPECT_EQ(peak_bound(step, Tier::kDevice).bytes, 200);
  EXPECT_EQ(in_order_peak(step, Tier::kHost).bytes, 0);
}

TEST(Peak, OfDataParallelSteps_HardlyDependsOnTheOrder) {
  const Compiled compiled = compile({.micro_batches = 3, .dp = 2, .bucket = 4000});
  const int64_t bound = peak_bound(compiled.programs[0], Tier::kDevice).bytes;
  const int64_t in_order = in_order_peak(compiled.programs[0], Tier::kDevice).bytes;
  EXPECT_GE(bound, in_order);
  EXPECT_LE(static_cast<double>(bound), 1.01 * static_cast<double>(in_order));
}

TEST(Peak, CountsAGraphOnlyWithThoseThatLiveBesideIt) {
  // Reduces may wait until all of backward is over, but backward's graphs come and go one by one.
  const Compiled compiled = compile({.layers = 4, .dp = 2, .recompute = 1, .bucket = 4000});
  EXPECT_EQ(peak_bound(compiled.programs[0], Tier::kDevice).bytes,
            in_order_peak(compiled.programs[0], Tier::kDevice).bytes);
}

TEST(Text, NamesLineAndRule_WhenItIsNoProgram) {
  const std::string good = to_text(compile({.micro_batches = 2, .dp = 2}).programs[0]);
  const auto refusal = [](const std::string& text) {
    try {
      parse_program(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorruptFile);
      return error.message();
    }
    return std::string("parsed");
  };
  EXPECT_EQ(refusal(good), "parsed");
  EXPECT_THAT(refusal(""), ::testing::HasSubstr("line 1 must be \"herd program 4\""));
  EXPECT_THAT(refusal(good.substr(0, 60)), ::testing::HasSubstr("line "));
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return refusal(text);
  };
  EXPECT_THAT(replaced("blocks 4", "blocks 5"), ::testing::HasSubstr("must list the groups of every block"));
  EXPECT_THAT(replaced("forward  ", "foreward "), ::testing::HasSubstr("must begin with the name of an op"));
  EXPECT_THAT(replaced("block0 mb0", "block0 mbx"), ::testing::HasSubstr("must hold a number"));
  EXPECT_THAT(replaced("all_reduce  g3 on dp", "all_reduce  g2 on dp"),
              ::testing::HasSubstr("must be of \"g3 on dp\""));
  EXPECT_THAT(replaced("dp=2@1", "dp=2"), ::testing::HasSubstr("must hold axis=size@stride"));
  EXPECT_THAT(replaced("dp=2@1", "dp=0@1"), ::testing::HasSubstr("must hold sizes and strides >= 1"));
  EXPECT_THAT(replaced("dp=2@1", "dp=2@1 dp{1,0}=2@1"), ::testing::HasSubstr("in ascending order"));
  EXPECT_THAT(replaced("dp=2@1", "dp=2@1 dp{0,2}=2@1"), ::testing::HasSubstr("places of the axis"));
  EXPECT_THAT(replaced("dp=2@1", "dp=2@1 dp{0,1}=2@1"), "parsed");
  EXPECT_THAT(replaced("g3 on dp", "g3 on tp"), ::testing::HasSubstr("must name an axis of the mesh"));
  EXPECT_THAT(replaced("tensor -", "tensor dp"), ::testing::HasSubstr("must name an axis of its own"));
  EXPECT_THAT(replaced("tensor -", "tensor -\nexperts dp"), ::testing::HasSubstr("must name an axis of its own"));
  EXPECT_THAT(replaced("tensor -", "tensor -\nstages -"), ::testing::HasSubstr("must name an axis of the mesh"));
}

TEST(Text, ShowsHazardsOnRequest) {
  EXPECT_THAT(to_text(gather_before_use(), {.dependencies = true}), ::testing::HasSubstr("#3 of the step before"));
}

}  // namespace
}  // namespace herd::program::testing
