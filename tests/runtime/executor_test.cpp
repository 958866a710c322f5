#include "herd/runtime/executor.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "herd/base/error.h"

#include "herd/program/program_names.h"

namespace herd::runtime {
namespace {

using namespace program;

Value weight(int g) { return {ValueKind::kWeight, g}; }
Value gradient(int g) { return {ValueKind::kGradient, g}; }
Value activation(int b) { return {ValueKind::kActivation, b, 0}; }

// Two blocks, one micro-batch, data parallel: forward 0, 1, backward 1, reduce 1, backward 0, reduce 0, step 0, 1.
Program tiny() {
  Program p;
  p.rank = 3;
  p.num_blocks = 2;
  auto add = [&](OpKind kind, herd::program::Lane lane, int block, std::vector<Value> reads,
                 std::vector<Value> writes) {
    Op op;
    op.kind = kind, op.lane = lane, op.block = block, op.reads = reads, op.writes = writes;
    if (kind == OpKind::kAllReduce || kind == OpKind::kStep) op.block = -1;
    op.micro_batch = kind == OpKind::kForward || kind == OpKind::kBackward ? 0 : -1;
    p.ops.push_back(op);
  };
  using L = herd::program::Lane;
  add(OpKind::kLoad, L::kCompute, 0, {}, {activation(0)});
  add(OpKind::kForward, L::kCompute, 0, {weight(0), activation(0)}, {activation(1)});
  add(OpKind::kForward, L::kCompute, 1, {weight(1), activation(1)}, {activation(2)});
  add(OpKind::kBackward, L::kCompute, 1, {weight(1), activation(2)}, {gradient(1)});
  add(OpKind::kAllReduce, L::kReduce, 1, {gradient(1)}, {gradient(1)});
  add(OpKind::kBackward, L::kCompute, 0, {weight(0), activation(1)}, {gradient(0)});
  add(OpKind::kAllReduce, L::kReduce, 0, {gradient(0)}, {gradient(0)});
  add(OpKind::kStep, L::kCompute, 0, {gradient(0)}, {weight(0)});
  add(OpKind::kStep, L::kCompute, 1, {gradient(1)}, {weight(1)});
  return p;
}

struct Recorder {
  std::mutex mutex;
  std::vector<std::string> seen;
  std::unique_ptr<Lane> network = thread_lane("network");
  int reduce_ms = 0;

  void note(const std::string& text) {
    std::lock_guard lock(mutex);
    seen.push_back(text);
  }
  BindingTable table() {
    BindingTable table;
    for (OpKind kind : {OpKind::kLoad, OpKind::kForward, OpKind::kBackward, OpKind::kStep})
      table[kind] = [this](const Op& op, int64_t) -> EventPtr {
        note(herd::program::describe({}, op));
        return nullptr;
      };
    table[OpKind::kAllReduce] = [this](const Op& op, int64_t) -> EventPtr {
      return network->submit({}, [this, op]() -> EventPtr {
        std::this_thread::sleep_for(std::chrono::milliseconds(reduce_ms));
        note(herd::program::describe({}, op));
        return nullptr;
      });
    };
    return table;
  }
  size_t position(const std::string& text, int64_t occurrence = 0) {
    for (size_t i = 0; i < seen.size(); ++i)
      if (seen[i] == text && occurrence-- == 0) return i;
    return seen.size();
  }
};

TEST(Executor, WaitsForExactlyTheHazards_WhenReducesAreSlow) {
  Recorder recorder;
  recorder.reduce_ms = 15;
  Executor executor(tiny(), recorder.table());
  for (int64_t step = 0; step < 3; ++step) executor.run(step);
  executor.drain();
  ASSERT_EQ(recorder.seen.size(), 27u);
  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_LT(recorder.position("all_reduce of g0", step), recorder.position("step of w0", step));
    EXPECT_LT(recorder.position("all_reduce of g1", step), recorder.position("step of w1", step));
    EXPECT_LT(recorder.position("backward of block0 mb0", step), recorder.position("all_reduce of g1", step))
        << "backward 0 does not depend on reduce 1 and must not wait for it";
  }
}

// A gradient reduced over two axes in turn, and then released: three ops of one lane, each of which touches what the
// one before has only started to write.
TEST(Executor, WaitsForTheEndOfAnOperationOfTheSameLane_WhereBothTouchOneValue) {
  constexpr int copies = 0, shards = 1;  // axes
  Program p;
  auto add = [&](OpKind kind, herd::program::Lane lane, int axis, std::vector<Value> reads, std::vector<Value> writes) {
    Op op;
    op.kind = kind, op.lane = lane, op.axis = axis, op.reads = reads, op.writes = writes;
    p.ops.push_back(op);
  };
  using L = herd::program::Lane;
  add(OpKind::kLoad, L::kCompute, kNoAxis, {}, {gradient(0)});
  add(OpKind::kAllReduce, L::kReduce, shards, {gradient(0)}, {gradient(0)});
  add(OpKind::kAllReduce, L::kReduce, copies, {gradient(0)}, {gradient(0)});
  add(OpKind::kRelease, L::kReduce, kNoAxis, {}, {gradient(0)});

  std::atomic<int64_t> value = 0, released = 0;
  std::map<int, std::unique_ptr<Lane>> networks;  // one a group: they progress independently
  for (const int axis : {copies, shards}) networks[axis] = thread_lane("axis" + std::to_string(axis));
  BindingTable table;
  table[OpKind::kLoad] = [&](const Op&, int64_t step) -> EventPtr {
    value = step;
    return nullptr;
  };
  table[OpKind::kAllReduce] = [&](const Op& op, int64_t) -> EventPtr {
    const bool slow = op.axis == shards;
    return networks[op.axis]->submit({}, [&value, slow]() -> EventPtr {
      std::this_thread::sleep_for(std::chrono::milliseconds(slow ? 10 : 0));
      value = slow ? value * 10 : value + 1;
      return nullptr;
    });
  };
  table[OpKind::kRelease] = [&](const Op&, int64_t) -> EventPtr {
    released = value.exchange(-1);
    return nullptr;
  };
  Executor executor(p, table);
  for (int64_t step = 1; step <= 3; ++step) {
    executor.run(step);
    executor.drain();
    EXPECT_EQ(released, step * 10 + 1);
  }
}

// Two reduces on groups of their own, each released when it is over. The first is slow: the second must not wait for
// its release, nor may the release of the second wait for the first lane job, and the buffer of the first is not
// written again before its release.
TEST(Executor, StartsTheNextOperation_BeforeTheReleaseOfTheOneBefore) {
  Program p;
  auto add = [&](OpKind kind, herd::program::Lane lane, std::vector<Value> reads, std::vector<Value> writes) {
    Op op;
    op.kind = kind, op.lane = lane, op.reads = reads, op.writes = writes;
    p.ops.push_back(op);
  };
  using L = herd::program::Lane;
  for (const int g : {0, 1}) {
    add(OpKind::kLoad, L::kCompute, {}, {gradient(g)});
    add(OpKind::kAllReduce, L::kReduce, {gradient(g)}, {weight(g)});
    add(OpKind::kRelease, L::kReduce, {}, {gradient(g)});
  }
  std::mutex mutex;
  std::vector<std::string> seen;
  const auto note = [&](const std::string& what, const Op& op) {
    const std::lock_guard lock(mutex);
    const Value& value = op.kind == OpKind::kAllReduce ? op.reads[0] : op.writes[0];
    seen.push_back(what + std::to_string(value.index));
  };
  std::promise<void> second_started;
  const auto started = second_started.get_future().share();
  std::map<int, std::unique_ptr<Lane>> networks;
  for (const int g : {0, 1}) networks[g] = thread_lane("network" + std::to_string(g));
  BindingTable table;
  table[OpKind::kLoad] = [&](const Op& op, int64_t) -> EventPtr {
    note("load", op);
    return nullptr;
  };
  table[OpKind::kAllReduce] = [&](const Op& op, int64_t step) -> EventPtr {
    const int g = op.reads[0].index;
    note("start", op);
    if (g == 1 && step == 0) second_started.set_value();
    return networks[g]->submit({}, [&, g, op]() -> EventPtr {
      EXPECT_EQ(started.wait_for(std::chrono::seconds(60)), std::future_status::ready) << "it waits for the first";
      if (g == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      note("end", op);
      return nullptr;
    });
  };
  table[OpKind::kRelease] = [&](const Op& op, int64_t) -> EventPtr {
    note("release", op);
    return nullptr;
  };
  Executor executor(p, table);
  for (int64_t step = 0; step < 2; ++step) executor.run(step);
  executor.drain();
  ASSERT_EQ(seen.size(), 16u);
  const auto at = [&](const std::string& what, int occurrence) {
    for (size_t i = 0; i < seen.size(); ++i) {
      if (seen[i] == what && occurrence-- == 0) return i;
    }
    return seen.size();
  };
  for (const int step : {0, 1}) {
    for (const std::string g : {"0", "1"}) EXPECT_LT(at("end" + g, step), at("release" + g, step));
  }
  EXPECT_LT(at("start1", 0), at("release0", 0));
  EXPECT_LT(at("release0", 0), at("load0", 1)) << "written again before it was released";
}

TEST(Executor, RecordsWhenAnOperationEnded_ThoughNobodyLooked) {
  Recorder recorder;
  recorder.reduce_ms = 5;
  BindingTable table = recorder.table();
  table[OpKind::kBackward] = [](const Op& op, int64_t) -> EventPtr {
    std::this_thread::sleep_for(std::chrono::milliseconds(op.block == 0 ? 500 : 0));
    return nullptr;
  };
  Executor executor(tiny(), table);
  executor.run(0);
  executor.drain();
  const auto times = executor.times();
  ASSERT_EQ(times.size(), 9u);
  EXPECT_GE(times[4].end_us - times[4].begin_us, 5e3);
  EXPECT_LT(times[4].end_us, times[5].end_us - 20e3) << "reduce 1 ended long before backward 0 did";
}

TEST(Executor, RecordsWhenEachOpRan_AndHowLongComputeStoodStill) {
  Recorder recorder;
  recorder.reduce_ms = 30;
  Executor executor(tiny(), recorder.table());
  executor.run(0);
  executor.drain();
  const auto times = executor.times();
  ASSERT_EQ(times.size(), 9u);
  for (const OpTime& t : times)
    EXPECT_GE(t.end_us, t.begin_us) << herd::program::describe(executor.program(), executor.program().ops[t.op]);
  EXPECT_GE(times[7].begin_us, times[6].end_us - 1000);
  EXPECT_GE(executor.waited_us(), 25e3);
}

TEST(Executor, NamesStepOpBlockMicroBatchAndRank_WhenAnOpThrows) {
  Recorder recorder;
  BindingTable table = recorder.table();
  table[OpKind::kBackward] = [](const Op& op, int64_t) -> EventPtr {
    if (op.block == 0) throw std::runtime_error("shapes differ");
    return nullptr;
  };
  Executor executor(tiny(), table);
  try {
    executor.run(7);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "step 7: backward of block0 mb0 on rank 3: shapes differ");
  }
  table[OpKind::kForward] = [](const Op&, int64_t) -> EventPtr { throw 3; };
  Executor other(tiny(), table);
  try {
    other.run(8);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "step 8: forward of block0 mb0 on rank 3: an object of type int, which is no std::exception");
  }
}

TEST(Executor, KeepsTheCodeOfAnError_ThatAnotherLaneThrew) {
  Recorder recorder;
  BindingTable table = recorder.table();
  table[OpKind::kAllReduce] = [&](const Op& op, int64_t) -> EventPtr {
    return recorder.network->submit({}, [op]() -> EventPtr {
      if (op.reads[0].index == 1) throw Error(Code::kPeerLost, "rank 1 is gone");
      return nullptr;
    });
  };
  Executor executor(tiny(), table);
  try {
    executor.run(0);
    executor.drain();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kPeerLost);
    EXPECT_EQ(error.message(), "step 0: all_reduce of g1 on rank 3: rank 1 is gone");
  }
}

// The compute lane waits for a reduce that ends only because somebody told the network of the other reduce's error.
TEST(Executor, TellsOfAnErrorOfAnotherLane_BeforeItWaitsForWhatIsInFlight_AndThrowsThatErrorRatherThanItsConsequence) {
  Recorder recorder;
  BindingTable table = recorder.table();
  std::promise<void> told;
  const auto network_ends = told.get_future().share();
  table[OpKind::kAllReduce] = [&](const Op& op, int64_t) -> EventPtr {
    if (op.block == -1 && op.reads[0].index == 0) throw Error(Code::kOverBudget, "no room");
    return recorder.network->submit({}, [network_ends]() -> EventPtr {
      network_ends.wait_for(std::chrono::seconds(60));
      throw Error(Code::kAborted, "rank 3 aborted");
    });
  };
  std::vector<std::string> heard;
  OpListener listener;
  listener.failed = [&](const Error& error) {
    heard.push_back(error.message());
    told.set_value();
  };
  Executor executor(tiny(), table, listener);
  const auto begin = std::chrono::steady_clock::now();
  try {
    executor.run(0);
    executor.drain();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOverBudget);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_THAT(heard, testing::ElementsAre("step 0: all_reduce of g0 on rank 3: no room"));
}

TEST(Executor, TellsOfEachOpBeforeItRuns_WithRankAndItsPlaceInTheMesh) {
  Recorder recorder;
  std::vector<std::string> begun;
  BindingTable table = recorder.table();
  table[OpKind::kForward] = [&](const Op&, int64_t) -> EventPtr {
    begun.push_back("runs");
    return nullptr;
  };
  OpListener listener;
  listener.began = [&](const std::string& op) {
    if (op.find("forward") != std::string::npos) begun.push_back(op);
  };
  program::Program step = tiny();
  step.rank = 1;
  step.mesh = {4, {{"dp", {{2, 2}}}, {"pp", {{1, 2}}}, {"dp*pp", {{2, 2}, {1, 2}}}}};
  Executor executor(step, table, listener);
  executor.run(5);
  executor.drain();
  ASSERT_GE(begun.size(), 2u);
  EXPECT_EQ(begun[0], "step 5: forward of block0 mb0 on rank 1 (dp 0, pp 1)");
  EXPECT_EQ(begun[1], "runs");
}

TEST(Executor, RefusesAProgram_WithAnOpThatHasNoBinding) {
  Recorder recorder;
  BindingTable table = recorder.table();
  table.erase(OpKind::kStep);
  EXPECT_THROW(Executor(tiny(), table), Error);
}

}  // namespace
}  // namespace herd::runtime
