// What every rank hears when one of them dies, stops, differs or is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/context.h"
#include "herd/comm/inproc_world.h"
#include "tests/comm/errors_of.h"
#include "tests/support/sample.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
using testing_support::errors_of;

TEST(Fingerprint, NamesBothSides_WhenCountsDiffer) {
  for (const char* algorithm : {"staged", "ring"}) {
    const auto errors = errors_of(2, [&](Communicator& comm) {
      std::vector<float> x(comm.rank() == 0 ? 100 : 101);
      comm.all_reduce(x, {.name = "grad.bucket3", .algorithm = algorithm});
    });
    for (const Error& error : errors) {
      EXPECT_EQ(error.code(), Code::kBadConfig) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("rank 0 calls all_reduce #1 \"grad.bucket3\" (fp32 x 100, sum"));
      EXPECT_THAT(error.what(), HasSubstr("rank 1 calls all_reduce #1 \"grad.bucket3\" (fp32 x 101, sum"));
      EXPECT_THAT(error.what(), HasSubstr("comm/faults_test.cpp:"));
    }
  }
}

TEST(Fingerprint, NamesNoLine_WhereOptionsCarryTheirDefaults) {
  const auto errors = errors_of(2, [&](Communicator& comm) {
    OpOptions options;  // as bindings of other languages do
    options.algorithm = "staged";
    std::vector<float> x(comm.rank() == 0 ? 100 : 101);
    comm.all_reduce(x, options);
  });
  for (const Error& error : errors) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 calls all_reduce #1 (fp32 x 101, sum, staged)"));
    EXPECT_THAT(error.what(), Not(HasSubstr("communicator.h")));
  }
}

TEST(Fingerprint, ComparesOperationOpDTypeNameRootAndAlgorithm) {
  const auto differ = [](auto&& zero, auto&& one) {
    for (const Error& error : errors_of(2, [&](Communicator& comm) { comm.rank() == 0 ? zero(comm) : one(comm); })) {
      EXPECT_EQ(error.code(), Code::kBadConfig) << error.what();
    }
  };
  std::array<std::vector<float>, 2> x = {std::vector<float>(8), std::vector<float>(8)};
  std::vector<int32_t> i(8);
  const auto sum = [&](Communicator& c) { c.all_reduce(x[static_cast<size_t>(c.rank())], {.algorithm = "staged"}); };
  differ(sum, [&](Communicator& c) { c.all_reduce(x[1], {.op = ReduceOp::kMax, .algorithm = "staged"}); });
  differ(sum, [&](Communicator& c) { c.all_reduce(i, {.algorithm = "staged"}); });
  differ(sum, [&](Communicator& c) { c.all_reduce(x[1], {.name = "other", .algorithm = "staged"}); });
  differ([&](Communicator& c) { c.all_reduce(x[0], {.algorithm = "staged"}); },
         [&](Communicator& c) { c.all_reduce(x[1], {.algorithm = "ring"}); });
  differ(sum, [&](Communicator& c) { c.broadcast(x[1], 0, {.algorithm = "staged"}); });
  differ(sum, [&](Communicator& c) { c.barrier({.algorithm = "dissemination_signal"}); });
}

TEST(Fingerprint, FindsTheFirstDifference_WhenTheRanksMeetOnlyInALaterOperation) {
  for (const char* algorithm : {"binomial", "staged"}) {
    const auto errors = errors_of(2, [&](Communicator& comm) {
      std::vector<float> x(8);
      comm.barrier();
      comm.broadcast(x, comm.rank(), {.algorithm = algorithm});  // each is its own root, and waits for nobody
      for (int i = 0; i < 3; ++i) comm.all_reduce(x);
    });
    for (const Error& error : errors) {
      EXPECT_EQ(error.code(), Code::kBadConfig) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("operation #2 of group"));
      EXPECT_THAT(error.what(), HasSubstr("rank 0 calls broadcast #2 (fp32 x 8, root 0"));
      EXPECT_THAT(error.what(), HasSubstr("rank 1 calls broadcast #2 (fp32 x 8, root 1"));
    }
  }
}

TEST(Fingerprint, FindsTheDifference_ThoughOneRankWaitsInALaterOperation) {
  const auto errors = errors_of(2, [](Communicator& comm) {
    comm.set_deadline(20s);
    std::vector<float> part(4), whole(8);
    if (comm.rank() == 0) {
      comm.all_gather(part, whole);
    } else {
      comm.broadcast(part, 1, {.algorithm = "staged"});  // its root waits for nobody
      comm.barrier();
    }
  });
  for (const Error& error : errors) {
    EXPECT_EQ(error.code(), Code::kBadConfig) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("rank 0 calls all_gather #1 (fp32 x 8"));
    EXPECT_THAT(error.what(), HasSubstr("rank 1 calls broadcast #1 (fp32 x 4, root 1"));
    EXPECT_THAT(error.what(), HasSubstr("they differ in: operation"));
  }
}

TEST(Fingerprint, ShowsWhatDiffers_WhereOperationCountAndDTypeAgree) {
  using Body = std::function<void(Communicator&, bool first)>;
  const std::vector<std::array<std::string, 3>> expected = {
      {"counts 3 5", "counts 5 3", "sizes of a list, counts, strides or segment_bytes"},
      {"list of 3 5", "list of 5 3", "sizes of a list, counts, strides or segment_bytes"},
      {"segments of 64 bytes", "segments of 128 bytes", "sizes of a list, counts, strides or segment_bytes"},
      {"(fp32 x 8, sum, staged; ", "(fp32 x 8, sum, staged, strides #", "sizes of a list, counts, strides or"},
      {"#1 (fp32 x 8", "#1 (fp32 x 8", "in place or not"},
      {"sum, ring", "sum, staged", "algorithm (without a name it follows from count and memory)"}};
  const std::vector<Body> calls = {
      [](Communicator& comm, bool first) {
        std::vector<float> part(3), whole(8);
        comm.all_gather(part, whole, {.counts = first ? std::vector<int64_t>{3, 5} : std::vector<int64_t>{5, 3}});
      },
      [](Communicator& comm, bool first) {
        std::vector<float> a(3), b(5);
        comm.all_reduce_list(first ? std::vector<std::span<float>>{a, b} : std::vector<std::span<float>>{b, a});
      },
      [](Communicator& comm, bool first) {
        std::vector<float> x(1000);
        comm.broadcast(x, 0, {.algorithm = "chain", .segment_bytes = first ? 64 : 128});
      },
      [](Communicator& comm, bool first) {
        std::vector<float> x(8);
        Buffer buffer{x.data(), 8, DType::kF32};
        buffer.layout = first ? 0 : 0x0123456789abcdef;
        comm.all_reduce(buffer, {.algorithm = "staged"});
      },
      [](Communicator& comm, bool first) {
        std::vector<float> part(4), whole(8);
        const std::span<float> at_place = std::span(whole).subspan(static_cast<size_t>(comm.rank()) * 4, 4);
        comm.all_gather(first ? at_place : std::span(part), whole, {.algorithm = "staged"});
      },
      [](Communicator& comm, bool first) {
        std::vector<float> x(8);
        comm.all_reduce(x, {.algorithm = first ? "ring" : "staged"});
      }};
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto call_and_meet = [&](Communicator& comm) {
      calls[i](comm, comm.rank() == 0);
      for (int k = 0; k < 2; ++k) comm.barrier();  // a rank may end the first before its peer finds the difference
    };
    for (const Error& error : errors_of(2, call_and_meet)) {
      EXPECT_EQ(error.code(), Code::kBadConfig) << error.what();
      SCOPED_TRACE(i);
      const std::string text = error.what();
      const size_t ours = text.find("rank 0 calls "), theirs = text.find("rank 1 calls ");
      ASSERT_NE(std::max(ours, theirs), std::string::npos) << text;
      EXPECT_THAT(text.substr(ours, text.find('\n', ours) - ours), HasSubstr(expected[i][0]));
      EXPECT_THAT(text.substr(theirs, text.find('\n', theirs) - theirs), HasSubstr(expected[i][1]));
      EXPECT_THAT(text, HasSubstr("they differ in: " + expected[i][2]));
      EXPECT_THAT(text, HasSubstr("fix: all ranks must agree"));
    }
  }
}

TEST(Fingerprint, FindsTheDifferenceAcrossThreeRanks_WhenOnlyOneDiffers) {
  for (const Error& error : errors_of(3, [](Communicator& comm) {
         std::vector<float> x(16);
         if (comm.rank() == 2)
           comm.all_reduce(x, {.op = ReduceOp::kMin});
         else
           comm.all_reduce(x);
       })) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_THAT(error.what(), HasSubstr("rank 2 calls all_reduce #1 (fp32 x 16, min"));
  }
}

TEST(Deadline, NamesTheMissingRank_AndWhereTheOthersAre) {
  std::atomic<bool> over{false};
  const auto errors = errors_of(3, [&](Communicator& comm) {
    std::vector<float> x(16);
    comm.all_reduce(x, {.name = "first"});
    if (comm.rank() == 2) {
      while (!over) std::this_thread::sleep_for(1ms);
      return;
    }
    try {
      comm.all_reduce(x, {.name = "second", .deadline = 1s});
    } catch (...) {
      over = true;
      throw;
    }
  });
  for (Rank rank : {0, 1}) {
    const Error& error = errors[static_cast<size_t>(rank)];
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_THAT(error.what(), HasSubstr("all_reduce #2 \"second\""));
    EXPECT_THAT(error.what(), HasSubstr("for rank 2"));
    EXPECT_THAT(error.what(), HasSubstr("rank 2 has finished all_reduce #1 \"first\""));
    EXPECT_THAT(error.what(), HasSubstr("is alive"));
  }
}

TEST(Deadline, IsTheGroups_WhereAnOperationNamesNone_AndGroupsInheritIt) {
  std::atomic<int> over{0};
  for (const Error& error : errors_of(2, [&](Communicator& world) {
         EXPECT_THROW(world.set_deadline(0ms), Error);
         EXPECT_THROW(world.barrier({.deadline = -5ms}), Error);
         std::vector<float> one(1);
         EXPECT_THROW(world.send_async(one, 0, 0, {.deadline = -5ms}), Error);
         world.set_deadline(std::chrono::milliseconds::max());  // counts from now, and the clock ends in 292 years
         world.barrier();
         world.barrier({.deadline = std::chrono::milliseconds::max()});
         world.set_deadline(1s);
         Communicator half = world.split(0, 0, "half");
         std::vector<float> x(4);
         const auto begin = std::chrono::steady_clock::now();
         // Each group is short of the other rank.
         const auto last = [&](Communicator& group, auto&& call) {
           try {
             call(group);
           } catch (const Error&) {
             EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
             ++over;
             while (over < 2) std::this_thread::sleep_for(1ms);
             throw;
           }
         };
         if (world.rank() == 0)
           last(half, [&](Communicator& group) { group.all_reduce(x); });
         else
           last(world, [&](Communicator& group) { group.receive(x, 0); });
       })) {
    EXPECT_EQ(error.code(), Code::kTimeout) << error.what();
  }
}

TEST(Deadline, SaysOfSendsThatCross_WhereTheOtherWaits) {
  const auto errors = errors_of(2, [&](Communicator& comm) {
    const std::vector<float> x(1 << 22);  // more than is sent ahead
    comm.set_deadline(comm.rank() == 0 ? 500ms : 5s);
    comm.send(x, 1 - comm.rank());
  });
  EXPECT_THAT(errors[0].what(), HasSubstr("rank 1 waits in send to rank 0"));
  EXPECT_THAT(errors[0].what(), HasSubstr("fix: sends that cross wait for each other"));
}

TEST(Deadline, IsTruePerOperation_WhileAnotherGroupIsFast_AndEndsBothGroups) {
  const auto errors = errors_of(2, [](Communicator& world) {
    Communicator other = world.split(0, 0, "other");
    std::vector<float> x(4), y(4, 1);
    Work late = world.rank() == 0 ? world.all_reduce_async(x, {.deadline = 100ms}) : Work();
    other.all_reduce(y);
    EXPECT_EQ(y[0], 2);
    if (world.rank() == 0) {
      const auto before = std::chrono::steady_clock::now();
      EXPECT_THROW(late.wait(), Error);
      EXPECT_LT(std::chrono::steady_clock::now() - before, 2s);
    }
    other.all_reduce(y);
  });
  for (const Error& error : errors) {
    EXPECT_EQ(error.code(), Code::kTimeout) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("in group \"world\": rank 0 waited"));
  }
}

TEST(Deadline, IsTrueWhileAnotherGroupNeverRests) {
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = errors_of(2, [](Communicator& world) {
    Communicator other = world.split(0, 0, "other");
    std::vector<float> x(4), y(4);
    Work late = world.rank() == 0 ? world.all_reduce_async(x, {.deadline = 100ms}) : Work();
    while (true) other.all_reduce(y);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
  for (const Error& error : errors) EXPECT_EQ(error.code(), Code::kTimeout) << error.what();
}

TEST(Abort, ReachesEveryRankAndEveryLaterOperation) {
  const auto errors = errors_of(3, [](Communicator& comm) {
    std::vector<float> x(16);
    std::thread thread;
    if (comm.rank() == 1) {
      thread = std::thread([&] {
        std::this_thread::sleep_for(30ms);
        comm.abort("the user pressed a key");
      });
    }
    try {
      if (comm.rank() == 2) std::this_thread::sleep_for(60ms);
      comm.all_reduce(x, {.algorithm = "staged"});
      comm.receive(x, (comm.rank() + 1) % 3, 5);
    } catch (...) {
      if (thread.joinable()) thread.join();
      throw;
    }
    if (thread.joinable()) thread.join();
  });
  for (const Error& error : errors) {
    EXPECT_EQ(error.code(), Code::kAborted);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 aborted: the user pressed a key"));
  }
}

// The rank that comes last has its sum while the others still wake up.
TEST(Abort, TakesNoCollectiveThatHasEndedHereFromTheOthers) {
  for (const char* algorithm : {"staged", "ring", "recursive_doubling"}) {
    for (int round = 0; round < 8; ++round) {
      std::atomic<int> sums{0};
      const auto errors = errors_of(3, [&](Communicator& comm) {
        std::vector<float> x(16, 1);
        if (comm.rank() == 1) std::this_thread::sleep_for(2ms);
        comm.all_reduce(x, {.algorithm = algorithm});
        if (x == std::vector<float>(16, 3)) ++sums;
        if (comm.rank() == 1) comm.abort("no more data");
        comm.barrier();
      });
      for (const Error& error : errors) EXPECT_EQ(error.code(), Code::kAborted);
      EXPECT_EQ(sums, 3) << algorithm;
    }
  }
}

TEST(PointToPointFaults, NamesBothSides_WhenCountsDiffer) {
  const auto errors = errors_of(2, [](Communicator& comm) {
    std::vector<float> four(4);
    std::vector<double> five(5);
    if (comm.rank() == 0)
      comm.send(four, 1, 9);
    else
      comm.receive(five, 0, 9);
  });
  EXPECT_EQ(errors[1].code(), Code::kBadConfig);
  EXPECT_THAT(errors[1].what(), HasSubstr("receive from rank 0 (tag 9, fp64 x 5"));
  EXPECT_THAT(errors[1].what(), HasSubstr("meets a message of fp32 x 4"));
}

struct StepCase {
  std::string algorithm;
  int n;
};

// A rank that stops at a step, alive or dead, is named by all others.
void stop_at_every_step(const std::string& algorithm, int n, bool dies) {
  const int64_t elements = 60;
  const std::vector<float> expected(static_cast<size_t>(elements), static_cast<float>(n * (n + 1) / 2));
  for (int64_t step = 0; step < 200; step += one_in(1, 3)) {
    bool stopped_in_time = true;
    std::atomic<int> failed{0};
    std::vector<Error> errors(static_cast<size_t>(n), Error(Code::kBug, "nothing"));
    std::vector<std::vector<float>> results(static_cast<size_t>(n));
    // Outlive the communicators: an operation that nobody waits for uses them until then.
    std::vector<std::vector<float>> buffers(static_cast<size_t>(n), std::vector<float>(static_cast<size_t>(elements)));
    run_inproc(n, [&](Communicator& comm) {
      SymmetricMemory memory = comm.allocate_symmetric(elements * 4);
      const auto x = algorithm.rfind("direct", 0) == 0 ? memory.span<float>()
                                                       : std::span<float>(buffers[static_cast<size_t>(comm.rank())]);
      const Rank victim = n - 1;
      std::fill(x.begin(), x.end(), static_cast<float>(comm.rank() + 1));
      comm.barrier();
      if (comm.rank() == victim) {
        comm::ScheduleExecutor& executor = comm::CommunicatorTestAccess::group(comm).executor();
        executor.fault().stop_before_step = step;
        Work work = comm.all_reduce_async(x, {.algorithm = algorithm});
        if (dies) {
          for (int i = 0; i < 20 && !work.done(); ++i) std::this_thread::sleep_for(1ms);
          if (work.done()) stopped_in_time = false;
          return;  // the group closes: for its peers this rank has left in the middle
        }
        while (!work.done() && failed.load() < n - 1) std::this_thread::sleep_for(1ms);
        if (!work.done()) comm.abort("the test is over");
        try {
          work.wait();
          stopped_in_time = false;
        } catch (const Error&) {
        }
        return;
      }
      try {
        comm.all_reduce(x, {.deadline = dies ? 10s : 100ms, .algorithm = algorithm});
        results[static_cast<size_t>(comm.rank())].assign(x.begin(), x.end());
      } catch (const Error& error) {
        errors[static_cast<size_t>(comm.rank())] = error;
      }
      ++failed;
    });
    if (!stopped_in_time) {
      EXPECT_GT(step, 2);
      return;
    }
    for (Rank rank = 0; rank < n - 1; ++rank) {
      const Error& error = errors[static_cast<size_t>(rank)];
      // Steps that hand nothing on (the last copies) may let the others finish.
      if (error.code() == Code::kBug) {
        EXPECT_GT(step, 0) << algorithm << ": rank " << rank << " noticed nothing of a rank that did nothing";
        EXPECT_EQ(results[static_cast<size_t>(rank)], expected) << algorithm << " step " << step;
        continue;
      }
      EXPECT_EQ(error.code(), dies ? Code::kPeerLost : Code::kTimeout)
          << algorithm << " step " << step << ": " << error.what();
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(n - 1))) << algorithm << " step " << step;
    }
  }
  ADD_FAILURE() << "the schedule has more than 200 steps";
}

class StopsAtAnyStep : public testing::TestWithParam<const char*> {};

TEST_P(StopsAtAnyStep, NamesTheSilentRank) { stop_at_every_step(GetParam(), 3, false); }
TEST_P(StopsAtAnyStep, NamesTheLostRank) { stop_at_every_step(GetParam(), 3, true); }

INSTANTIATE_TEST_SUITE_P(Algorithms, StopsAtAnyStep, testing::Values("ring", "staged", "direct_pull", "direct_push"));

}  // namespace
}  // namespace herd
