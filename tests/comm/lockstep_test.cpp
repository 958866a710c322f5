// Right and wrong schedules by herd's own executor, in shuffled interleavings: what the verifier lets pass is right,
// and what goes wrong is a finding.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>

#include "herd/comm/collective_call.h"
#include "herd/comm/context.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/verify_schedule.h"
#include "herd/transport/local_transport.h"
#include "herd/transport/thread_courier.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/comm/lockstep_world.h"
#include "tests/schedule/mutate.h"

namespace herd::testing_support {
namespace {

using namespace std::chrono_literals;

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kShuffles = 4;  // what sanitizers look for does not hang on the order of steps
#else
constexpr int kShuffles = 20;
#endif

std::vector<CollectiveRequest> requests_of(const AlgorithmInfo& info) {
  std::vector<CollectiveRequest> requests = small_requests(info, DType::kF64, full_tests());
  if (!full_tests()) return requests;
  for (const CollectiveRequest& request : requests_of_several_pieces(info)) requests.push_back(request);
  return requests;
}

RunResult execute_often(std::span<const Schedule> all, int shuffles) {
  for (int i = 0; i < shuffles; ++i) {
    const RunResult result = execute(all, {.seed = static_cast<uint64_t>(i) + 1});
    if (result.verdict != Verdict::kRight) return result;
  }
  return {};
}

std::string name_of(const AlgorithmInfo& info) {
  return std::string(collective_name(info.collective)) + "_" + std::string(info.name);
}

class Executor : public testing::TestWithParam<AlgorithmInfo> {};

TEST_P(Executor, RunsEveryScheduleRightInEveryInterleaving) {
  for (const CollectiveRequest& request : requests_of(GetParam())) {
    const auto right = build_all_ranks(GetParam().name, request);
    ASSERT_EQ(unrunnable(right), "") << title(GetParam(), request);
    const RunResult result = execute_often(right, request.elements > 1000 ? 2 : kShuffles);
    EXPECT_EQ(result.verdict, Verdict::kRight) << title(GetParam(), request) << ": " << result.why;
  }
}

struct Counts {
  int mutants = 0, unrunnable = 0, wrong = 0, stuck = 0, missed = 0, harmless = 0, harmless_findings = 0;
};

// Those that can't be run at all (beyond memory, no such peer) have to be findings, too.
void count_mutant(std::span<const Schedule> wrong, int shuffles, Counts& counts, const std::string& what) {
  ++counts.mutants;
  const bool found = !verify(wrong).empty();
  if (!unrunnable(wrong).empty()) {
    ++counts.unrunnable;
    EXPECT_TRUE(found) << what << ": " << unrunnable(wrong);
    counts.missed += !found;
    return;
  }
  const RunResult result = execute_often(wrong, shuffles);
  if (result.verdict == Verdict::kRight) {
    ++counts.harmless;
    counts.harmless_findings += found;
    return;
  }
  ++(result.verdict == Verdict::kStuck ? counts.stuck : counts.wrong);
  counts.missed += !found;
  EXPECT_TRUE(found) << what << "\n  " << result.why;
}

TEST_P(Executor, ShowsNoMutantWrongOrStuckThatTheVerifierLetsPass) {
  Counts counts;
  int number = 0;
  for (const CollectiveRequest& request : requests_of(GetParam())) {
    const std::vector<Schedule> right = build_all_ranks(GetParam().name, request);
    const bool lengthy = request.elements > 1000;
    for (const Mutation& mutation : all_mutations(right)) {
      if (++number % (full_tests() ? (lengthy ? 64 : 1) : 29) != 0) continue;
      count_mutant(mutated(right, mutation), lengthy ? 4 : kShuffles, counts,
                   title(GetParam(), request) + "\n  " + describe(right, mutation));
    }
  }
  std::printf(
      "  %-36s %6d mutants: %5d wrong, %5d stuck, %5d unrunnable, %5d harmless (%d of them findings); %d missed\n",
      name_of(GetParam()).c_str(), counts.mutants, counts.wrong, counts.stuck, counts.unrunnable, counts.harmless,
      counts.harmless_findings, counts.missed);
  EXPECT_EQ(counts.missed, 0);
}

// The same by ranks as threads, which really run at once: ThreadSanitizer sees what no interleaving of steps can show.
// A rank that waits longer than `deadline` is stuck: short only where the verifier says that it may be.
RunResult execute_by_threads(const std::vector<Schedule>& all, uint64_t seed, int operations,
                             std::chrono::milliseconds deadline) {
  const auto n = static_cast<int>(all.size());
  const auto hub = std::make_shared<transport::ThreadHub>(n);
  std::vector<RunResult> results(all.size());
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      const Schedule& schedule = all[static_cast<size_t>(rank)];
      auto courier = std::make_unique<transport::ThreadCourier>(hub, rank);
      auto transport =
          std::make_shared<transport::LocalTransport>(std::move(courier), std::chrono::steady_clock::now() + 30s);
      Communicator world = comm::CommunicatorTestAccess::make(
          std::move(transport), [&](std::string_view, const CollectiveRequest&) { return schedule; });
      const SymmetricMemory memory = world.allocate_symmetric(LockstepWorld::kMemoryBytes);
      const int64_t in = space_size(schedule, rank, Space::kInput), out = space_size(schedule, rank, Space::kOutput);
      const auto doubles = memory.span<double>();
      const auto input = doubles.subspan(0, static_cast<size_t>(in));
      const auto output = doubles.subspan(static_cast<size_t>(in), static_cast<size_t>(out));
      comm::GroupState& group = comm::CommunicatorTestAccess::group(world);
      group.executor().fault().skip_turn =
          [random = std::mt19937_64(seed * 64 + static_cast<uint64_t>(rank))]() mutable { return random() % 2 == 0; };
      const ExactData data(schedule);
      RunResult& result = results[static_cast<size_t>(rank)];
      for (int operation = 0; operation < operations && result.verdict == Verdict::kRight; ++operation) {
        data.give(operation, input, output);
        comm::CollectiveCall call =
            call_of(schedule, reinterpret_cast<std::byte*>(input.data()), reinterpret_cast<std::byte*>(output.data()));
        call.deadline = deadline;
        comm::PendingOp task;
        group.prepare(task, call);
        try {
          group.engine().run(task);
          result.why = data.compare(operation, output);
          if (!result.why.empty()) result.verdict = Verdict::kWrong;
        } catch (const Error& error) {
          result = {error.code() == Code::kTimeout ? Verdict::kStuck : Verdict::kWrong, error.message()};
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const RunResult& result : results) {
    if (result.verdict != Verdict::kRight) return result;
  }
  return {};
}

TEST_P(Executor, ByThreadsShowsNoMutantWrongOrStuckThatTheVerifierLetsPass) {
  const CollectiveRequest request = requests_of(GetParam()).front();
  const std::vector<Schedule> right = build_all_ranks(GetParam().name, request);
  ASSERT_EQ(execute_by_threads(right, 1, 8, 20s).why, "");
  int number = 0, wrong = 0;
  for (const Mutation& mutation : all_mutations(right)) {
    if (++number % (full_tests() ? 3 : 61) != 0) continue;
    const std::vector<Schedule> mutant = mutated(right, mutation);
    if (!unrunnable(mutant).empty()) continue;
    const bool found = !verify(mutant).empty();
    if (found && kThreadSanitizer) continue;  // it would see the races that the verifier found
    const RunResult result = execute_by_threads(mutant, static_cast<uint64_t>(number), 4, found ? 100ms : 20s);
    wrong += result.verdict != Verdict::kRight;
    EXPECT_TRUE(found || result.verdict == Verdict::kRight) << describe(right, mutation) << "\n  " << result.why;
  }
  RecordProperty("wrong_or_stuck", wrong);
}

INSTANTIATE_TEST_SUITE_P(All, Executor, testing::ValuesIn(every_algorithm()),
                         [](const auto& one) { return name_of(one.param); });

// What a small operation costs where ranks share cores is how often each has to give its core away.
TEST(Lockstep, SmallOperationsTakeTwoTurnsOfEachRank_AndOneOfTheLast) {
  const std::pair<Collective, const char*> eager[] = {{Collective::kAllToAll, "staged"},
                                                      {Collective::kAllReduce, "staged"},
                                                      {Collective::kAllGather, "staged"},
                                                      {Collective::kReduceScatter, "staged"},
                                                      {Collective::kBarrier, "direct_signal"}};
  for (const auto& [collective, algorithm] : eager) {
    const int64_t elements = collective == Collective::kBarrier ? 0 : 64;
    const auto all = build_all_ranks(
        algorithm, {.collective = collective, .num_ranks = 4, .elements = elements, .dtype = DType::kF64});
    LockstepWorld world(all);
    std::vector<comm::PendingOp> tasks(4);
    for (Rank rank = 0; rank < 4; ++rank) {
      comm::PendingOp& task = tasks[static_cast<size_t>(rank)];
      comm::CollectiveCall call =
          call_of(all[static_cast<size_t>(rank)], world.memory(rank), world.memory(rank) + (1 << 10));
      world.group(rank).prepare(task, call);
      world.group(rank).submit(task);
      world.group(rank).poll();
      EXPECT_EQ(task.done, rank == 3) << collective_name(collective) << " rank " << rank;
    }
    for (Rank rank = 0; rank < 3; ++rank) {
      world.group(rank).poll();
      EXPECT_TRUE(tasks[static_cast<size_t>(rank)].done) << collective_name(collective) << " rank " << rank;
    }
  }
}

TEST(Lockstep, WhoWaitsForAnEarlierOperationToEndIsRungByWhoeverEndsIt) {
  // Root writes to its stage and tells rank 0, which copies it out and tells nobody.
  std::vector<Schedule> all(2);
  for (Rank rank : {0, 1}) {
    Schedule header;
    header.collective = Collective::kBroadcast;
    header.self = rank, header.num_ranks = 2, header.root = 1, header.elements = 8, header.dtype = DType::kF64;
    header.in_place = true;
    Builder b(header);
    const Slice stage = Builder::on_rank(b.stage(8), 1), mine = b.output({0, 8});
    if (rank == 1) {
      b.copy(mine, {stage});
      b.signal(0, {stage});
    } else {
      b.wait(1, {stage});
      b.copy(stage, {mine});
    }
    all[static_cast<size_t>(rank)] = b.finish();
  }
  std::vector<comm::PendingOp> tasks(20);
  LockstepWorld world(all);
  auto issued = tasks.begin();
  const auto issue = [&](Rank rank) {
    comm::CollectiveCall call = call_of(all[static_cast<size_t>(rank)], nullptr, world.memory(rank));
    world.group(rank).prepare(*issued, call);
    world.group(rank).submit(*issued);
    return issued++;
  };
  const auto run_on = [&](Rank rank) {
    while (world.group(rank).poll()) {
    }
  };
  const auto rung = [&] {
    pollfd wait = {world.doorbell(1), POLLIN, 0};
    return poll(&wait, 1, 0) > 0;
  };
  auto last = issue(1);
  for (run_on(1); last->done; run_on(1)) last = issue(1);
  ASSERT_FALSE(last->begun) << "root runs ahead until it may not begin";
  const auto theirs = issue(0);
  world.group(0).executor().fault().stop_before_step = static_cast<int64_t>(all[0].steps.size()) - 1;
  run_on(0);
  ASSERT_FALSE(theirs->done);
  world.sleep(1);
  ASSERT_FALSE(rung());
  world.group(0).executor().fault().stop_before_step = -1;
  run_on(0);
  ASSERT_TRUE(theirs->done);
  EXPECT_TRUE(rung());
}

}  // namespace
}  // namespace herd::testing_support
