// What each operation does with the caller's buffers, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/inproc_world.h"
#include "tests/comm/errors_of.h"
#include "tests/comm/require.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing_support::errors_of;
using testing_support::require;
using Ints = std::vector<int32_t>;

// What does not compile, or does.
template <typename T>
concept Reduces = requires(Communicator& comm, T&& x) {
  comm.all_reduce(std::forward<T>(x));
};
template <typename T>
concept ReducesLater = requires(Communicator& comm, T&& x) {
  comm.all_reduce_async(std::forward<T>(x));
};
template <typename T>
concept ReducesLists = requires(Communicator& comm, T&& x) {
  comm.all_reduce_list_async(std::forward<T>(x));
};
template <typename In, typename Out>
concept Gathers = requires(Communicator& comm, In&& in, Out&& out) {
  comm.all_gather_async(std::forward<In>(in), std::forward<Out>(out));
};
static_assert(Reduces<Ints&> && Reduces<Ints> && Reduces<std::span<int32_t>> && Reduces<Buffer>);
static_assert(!Reduces<const Ints&> && !Reduces<std::span<const int32_t>>, "elements that are const are not written");
static_assert(ReducesLater<Ints&> && ReducesLater<std::span<int32_t>> && ReducesLater<Buffer>);
static_assert(!ReducesLater<Ints>, "a temporary is gone before the operation is done");
static_assert(Gathers<const Ints&, Ints&> && !Gathers<Ints, Ints&> && !Gathers<Ints&, const Ints&>);
static_assert(ReducesLists<std::vector<Ints>&> && ReducesLists<std::vector<std::span<int32_t>>>);
static_assert(!ReducesLists<std::vector<Ints>> && !ReducesLists<const std::vector<Ints>&>);

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == Code::kBadConfig) return error.message();
  }
  return "no refusal";
}

TEST(Operations, GatherAndScatterAreEachOthersReverse) {
  run_inproc(3, [](Communicator& comm) {
    const Ints mine = {comm.rank(), 10 * comm.rank()};
    Ints all(6), back(2);
    comm.gather(mine, all, 1);
    require(comm.rank() != 1 || all == Ints({0, 0, 1, 10, 2, 20}), "gather");
    comm.scatter(all, back, 1);
    require(back == mine, "scatter");
  });
}

TEST(Operations, OthersThanRootNeedNoWhole) {
  run_inproc(2, [](Communicator& comm) {
    const Ints mine = {comm.rank()};
    Ints all(comm.rank() == 0 ? 2 : 0);
    comm.gather(mine, all, 0);
    require(comm.rank() == 1 || all == Ints({0, 1}), "gather");
  });
}

TEST(Operations, UnevenPartsGoWhereTheCountsSay) {
  run_inproc(3, [](Communicator& comm) {
    const std::vector<int64_t> counts = {2, 0, 3};
    const Ints mine(static_cast<size_t>(counts[static_cast<size_t>(comm.rank())]), comm.rank() + 1);
    Ints all(5), part(mine.size());
    comm.all_gather(mine, all, {.counts = counts});
    require(all == Ints({1, 1, 3, 3, 3}), "all_gather");
    comm.reduce_scatter(all, part, {.counts = counts});
    require(part == Ints(mine.size(), 3 * (comm.rank() + 1)), "reduce_scatter");
    Ints gathered(5), scattered(mine.size());
    comm.gather(mine, gathered, 2, {.counts = counts});
    comm.scatter(gathered, scattered, 2, {.counts = counts});
    require(scattered == mine, "gather and scatter");
  });
}

TEST(Operations, AllToAllExchangesBlocks_EvenAndUneven) {
  run_inproc(3, [](Communicator& comm) {
    const int r = comm.rank();
    Ints out(3);
    comm.all_to_all(Ints({10 * r, 10 * r + 1, 10 * r + 2}), out);
    require(out == Ints({r, 10 + r, 20 + r}), "even");
    Ints x = {10 * r, 10 * r + 1, 10 * r + 2};
    comm.all_to_all(x, x);
    require(x == out, "in place");
    // Rank r sends t elements to rank t, each saying 10 r + t.
    const std::vector<int64_t> sends = {0, 1, 2};
    const std::vector<int64_t> counts = comm.exchange_counts(sends);
    Ints got(static_cast<size_t>(3 * r)), want;
    comm.all_to_all(Ints({10 * r + 1, 10 * r + 2, 10 * r + 2}), got, {.counts = counts});
    for (int from = 0; from < 3; ++from) want.insert(want.end(), static_cast<size_t>(r), 10 * from + r);
    require(got == want, "uneven");
  });
}

// Whoever has nothing can't see what kind of memory the others use, nor that they are in place.
TEST(Operations, ARankWithoutElementsFitsAnyCall) {
  constexpr int64_t kMany = 300'000;
  const std::vector<int64_t> counts = {kMany, 0, kMany};
  run_inproc(3, [&](Communicator& comm) {
    const auto r = static_cast<size_t>(comm.rank());
    const auto mine = static_cast<size_t>(counts[r]), begin = r == 0 ? size_t{0} : static_cast<size_t>(kMany);
    SymmetricMemory memory = comm.allocate_symmetric(2 * kMany * 4);
    Ints apart(2 * kMany);
    for (const std::span<int32_t> whole : {std::span<int32_t>(apart), memory.span<int32_t>()}) {
      Ints nothing;
      const std::span<int32_t> part = mine == 0 ? std::span<int32_t>(nothing) : whole.subspan(begin, mine);
      const auto fill = [&](int32_t value) { std::fill(whole.begin(), whole.end(), value); };
      const auto holds = [&](size_t at, int32_t value) {
        return std::all_of(whole.begin() + at, whole.begin() + at + kMany, [&](int32_t x) { return x == value; });
      };
      fill(comm.rank() + 1);
      comm.all_gather(std::span<const int32_t>(part), whole, {.counts = counts});
      require(holds(0, 1) && holds(kMany, 3), "all_gather in place");
      fill(comm.rank() + 1);
      comm.reduce_scatter(std::span<const int32_t>(whole), part, {.counts = counts});
      require(mine == 0 || holds(begin, 6), "reduce_scatter in place");
      Ints other(mine, comm.rank() + 1);
      comm.gather(other, whole, 2, {.counts = counts});
      require(comm.rank() != 2 || (holds(0, 1) && holds(kMany, 3)), "gather");
      comm.scatter(whole, other, 2, {.counts = counts});
      require(other == Ints(mine, comm.rank() + 1), "scatter");
      // Ranks 0 and 2 exchange what they have.
      std::vector<int64_t> blocks(9);
      blocks[2] = blocks[6] = kMany;
      fill(comm.rank() + 1);
      const std::span<int32_t> x = whole.first(mine);
      comm.all_to_all(std::span<const int32_t>(mine == 0 ? part : x), mine == 0 ? part : x, {.counts = blocks});
      require(mine == 0 || holds(0, comm.rank() == 0 ? 3 : 1), "all_to_all in place");
    }
  });
}

TEST(Operations, PremultipliedSumsScaleWhatEachRankGives_AndOnlyResultsChange) {
  run_inproc(2, [](Communicator& comm) {
    const OpOptions twice{.op = ReduceOp::kPremultipliedSum, .factor = comm.rank() == 0 ? 0.5 : 2.0};
    std::vector<double> x = {2, 4}, part(1);
    comm.all_reduce(x, twice);
    require(x == std::vector<double>({5, 10}), "all_reduce");
    std::vector<double> in = {2, 4};
    comm.reduce_scatter(in, part, twice);
    require(part[0] == (comm.rank() == 0 ? 5 : 10) && in == std::vector<double>({2, 4}), "reduce_scatter");
    comm.reduce(in, 0, twice);
    require(in == (comm.rank() == 0 ? std::vector<double>({5, 10}) : std::vector<double>({2, 4})), "reduce");
    Ints whole = {1};
    require(refusal([&] { comm.all_reduce(whole, twice); }).find("not defined for int32") != std::string::npos, "int");
    require(refusal([&] { comm.all_reduce(in, {.factor = 2}); }).find("fix: op = ") != std::string::npos, "no op");
  });
}

TEST(Operations, BitsMeetByAndOrAndXor) {
  run_inproc(3, [](Communicator& comm) {
    const auto result = [&](ReduceOp op) {
      Ints x = {comm.rank() + 5};  // 101, 110, 111
      comm.all_reduce(x, {.op = op});
      return x[0];
    };
    require(result(ReduceOp::kAnd) == 4 && result(ReduceOp::kOr) == 7 && result(ReduceOp::kXor) == 4, "bits");
  });
}

TEST(Lists, AreOneOperation_OnBuffersApartAndSideBySide) {
  run_inproc(2, [](Communicator& comm) {
    const float mine = static_cast<float>(comm.rank() + 1);
    std::vector<float> a(3, mine), b(0), c(1000, 10 * mine);
    comm.all_reduce_list(std::vector<std::span<float>>{a, b, c});
    require(a == std::vector<float>(3, 3) && c == std::vector<float>(1000, 30), "all_reduce");
    comm.all_reduce_list(std::vector<std::span<float>>{std::span(c).first(10), std::span(c).subspan(10)});
    require(c == std::vector<float>(1000, 60), "side by side");
    if (comm.rank() == 1) a.assign(3, 7);
    comm.broadcast_list(std::vector<std::span<float>>{a, c}, 1);
    require(a == std::vector<float>(3, 7), "broadcast");
    comm.reduce_list(std::vector<std::span<float>>{a, c}, 0);
    require(a == std::vector<float>(3, comm.rank() == 0 ? 14.f : 7.f), "reduce");
    std::vector<std::vector<float>> parts = {{mine}, {mine * 10, mine * 100}};
    std::vector<std::vector<float>> wholes = {std::vector<float>(2), std::vector<float>(4)};
    comm.all_gather_list(parts, wholes);
    require(wholes[0] == std::vector<float>({1, 2}) && wholes[1] == std::vector<float>({10, 100, 20, 200}), "gather");
    comm.reduce_scatter_list(wholes, parts);
    require(parts[0] == std::vector<float>({2 * mine}) && parts[1] == std::vector<float>({20 * mine, 200 * mine}),
            "reduce_scatter");
    Work later = comm.all_reduce_list_async(parts);
    later.wait();
    require(parts[0][0] == 6, "asynchronous");
    comm.all_reduce_list(std::vector<std::span<float>>{});
    const auto algorithms = comm.algorithms_used();
    require(!algorithms.empty(), "record");
  });
}

TEST(Lists, OfParts_GoToRootAndFromIt_AndFromEachRankToEach) {
  for (int n : {1, 2, 3, 5}) {
    run_inproc(n, [n](Communicator& comm) {
      const Rank self = comm.rank(), root = n - 1;
      const auto value = [](Rank from, Rank to, int32_t i) { return 10'000 * from + 100 * to + i; };
      const std::vector<size_t> sizes = {2, 0, 5};
      // A list of `blocks` blocks of each size; block b is what rank from(b) gives to rank to(b).
      const auto list = [&](int blocks, auto&& from, auto&& to) {
        std::vector<Ints> lists;
        for (size_t size : sizes) {
          Ints& one = lists.emplace_back();
          for (int b = 0; b < blocks; ++b) {
            for (size_t i = 0; i < size; ++i) one.push_back(value(from(b), to(b), static_cast<int32_t>(size + i)));
          }
        }
        return lists;
      };
      const auto blank = [](std::vector<Ints> lists) {
        for (Ints& one : lists) std::fill(one.begin(), one.end(), -1);
        return lists;
      };
      const auto me = [&](int) { return self; };
      const auto each = [](int b) { return b; };
      const auto at_root = [&](int) { return root; };

      const std::vector<Ints> gathered = list(n, each, at_root);
      std::vector<Ints> whole = blank(gathered);
      comm.gather_list(list(1, me, at_root), whole, root);
      require(whole == (self == root ? gathered : blank(gathered)), "gather");

      std::vector<Ints> part = blank(list(1, at_root, me));
      std::vector<Ints> wholes = list(n, at_root, each);
      comm.scatter_list_async(wholes, part, root).wait();
      require(part == list(1, at_root, me), "scatter");

      whole = blank(gathered);
      comm.all_to_all_list(list(n, me, each), whole);
      require(whole == list(n, each, me), "all_to_all");

      std::vector<Ints> none;
      comm.gather_list(list(1, me, at_root), self == root ? whole : none, root);  // others need no whole
      comm.scatter_list(self == root ? list(n, at_root, each) : none, part, root);
      require(part == list(1, at_root, me), "scatter without wholes");
    });
  }
}

TEST(Lists, WhosePartsDoNotFitTheirWholesAreRefused) {
  run_inproc(2, [](Communicator& comm) {
    std::vector<Ints> parts = {Ints(1), Ints(2)}, wholes = {Ints(2), Ints(5)};
    EXPECT_THAT(refusal([&] { comm.all_gather_list(parts, wholes); }),
                HasSubstr("all_gather_list: buffer 1 has a part of 2 and a whole of 5 elements"));
    EXPECT_THAT(refusal([&] { comm.gather_list(parts, wholes, 2); }), HasSubstr("root 2 is not in the group"));
    EXPECT_THAT(refusal([&] { comm.all_to_all_list(parts, wholes); }), HasSubstr("all_to_all_list: buffer 0"));
    wholes.pop_back();
    EXPECT_THAT(refusal([&] { comm.reduce_scatter_list(wholes, parts); }), HasSubstr("lists of 2 parts and 1 wholes"));
  });
}

TEST(Lists, CutElsewhereOnAnotherRankAreRefusedByBoth) {
  for (const Error& error : errors_of(2, [](Communicator& comm) {
         std::vector<float> a(comm.rank() == 0 ? 3u : 5u), b(comm.rank() == 0 ? 5u : 3u);
         comm.all_reduce_list(std::vector<std::span<float>>{a, b});
       })) {
    EXPECT_EQ(error.code(), Code::kBadConfig) << error.what();
  }
}

TEST(Lists, OfTwoDTypesAreRefused) {
  run_inproc(1, [](Communicator& comm) {
    float x = 0;
    double y = 0;
    const std::vector<Buffer> list = {{&x, 1, DType::kF32}, {&y, 1, DType::kF64}};
    EXPECT_THAT(refusal([&] { comm.all_reduce_list(list); }), HasSubstr("the list holds fp32 and fp64"));
  });
}

TEST(Operations, RefuseBuffersThatDoNotFit_NamingTheRule) {
  run_inproc(1, [](Communicator& comm) {
    Ints one(1), two(2), three(3);
    EXPECT_THAT(refusal([&] { comm.all_gather(one, two); }), HasSubstr("this rank's part has to be int32 x 2"));
    EXPECT_THAT(refusal([&] { comm.gather(one, two, 0); }),
                HasSubstr("the whole has to be int32 x 1, but it is int32 x 2"));
    EXPECT_THAT(refusal([&] { comm.scatter(one, two, 3); }), HasSubstr("root 3 is not in the group"));
    EXPECT_THAT(refusal([&] { comm.all_to_all(two, three); }),
                HasSubstr("what this rank receives has to be int32 x 2"));
    const std::vector<int64_t> counts = {1, 2};
    EXPECT_THAT(refusal([&] { comm.all_gather(one, three, {.counts = counts}); }),
                HasSubstr("needs 1 counts, but has 2"));
    EXPECT_THAT(refusal([&] { comm.all_reduce(one, {.counts = counts}); }), HasSubstr("has no parts, so no counts"));
    EXPECT_THAT(refusal([&] { comm.all_to_all(std::span(three).first(2), std::span(three).last(2)); }),
                HasSubstr("overlap in part"));
    Buffer turned = {three.data(), 3, DType::kI32};
    turned.layout = 5;
    EXPECT_THAT(refusal([&] { comm.all_gather(turned, three); }), HasSubstr("logical order"));
    EXPECT_THAT(refusal([&] { comm.send(turned, 0); }), HasSubstr("logical order"));
    EXPECT_EQ(refusal([&] { comm.all_reduce(turned); }), "no refusal") << "every element is treated alike";
  });
}

TEST(Operations, OfOtherLayoutOnAnotherRankAreRefusedByBoth) {
  for (const Error& error : errors_of(2, [](Communicator& comm) {
         Ints x(6);
         Buffer buffer = {x.data(), 6, DType::kI32};
         buffer.layout = static_cast<uint64_t>(comm.rank());
         comm.all_reduce(buffer);
       })) {
    EXPECT_EQ(error.code(), Code::kBadConfig) << error.what();
  }
}

TEST(AnySource, TakesWhoeverComesFirst_AndLeavesOtherTagsAlone) {
  run_inproc(3, [](Communicator& comm) {
    if (comm.rank() != 0) {
      std::this_thread::sleep_for(comm.rank() == 1 ? 40ms : 0ms);
      comm.send(Ints(200000, -comm.rank()), 0, 1);  // larger than a ring: in the way, until it is wanted
      comm.send(Ints{comm.rank()}, 0, 2);
      return;
    }
    Ints x(1), large(200000);
    require(comm.receive_from_any(x, 2) == 2 && x[0] == 2, "first");
    Work second = comm.receive_async(x, kAnySource, 2);
    second.wait();
    require(second.source() == 1 && x[0] == 1, "second");
    comm.receive(large, 1, 1);
    require(large == Ints(200000, -1), "kept");
    require(comm.receive_from_any(large, 1) == 2 && large == Ints(200000, -2), "kept, from any");
  });
}

TEST(AnySource, SaysSoWhenNobodySends) {
  const auto errors = errors_of(2, [](Communicator& comm) {
    Ints x(1);
    if (comm.rank() == 0) comm.receive_from_any(x, 2, {.deadline = 50ms});
  });
  EXPECT_EQ(errors[0].code(), Code::kTimeout);
  EXPECT_THAT(errors[0].what(), HasSubstr("receive from any rank (tag 2, int32 x 1"));
}

TEST(Operations, OfACommunicatorThatWasMovedFromAreRefused) {
  Communicator comm = world_of_one();
  Communicator moved = std::move(comm);
  Ints x = {1};
  const std::vector<std::function<void()>> calls = {
      [&] { (void)comm.rank(); },
      [&] { (void)comm.size(); },
      [&] { (void)comm.name(); },
      [&] { (void)comm.share(); },
      [&] { (void)comm.split(0, 0); },
      [&] { (void)comm.shrink(); },
      [&] { (void)comm.topology(); },
      [&] { (void)comm.bytes_moved(); },
      [&] { (void)comm.algorithms_used(); },
      [&] { (void)comm.allocate_symmetric(8); },
      [&] { comm.set_deadline(1s); },
      [&] { comm.abort("moved"); },
      [&] { comm.show_activity("moved"); },
      [&] { comm.barrier(); },
      [&] { comm.all_reduce(x); },
      [&] { (void)comm.all_reduce_async(x); },
      [&] { comm.broadcast(x, 0); },
      [&] { comm.send(x, 0); },
      [&] { (void)comm.receive_async(x, 0); },
      [&] { comm.signal(0); },
      [&] { comm.wait(0); },
      [&] { comm.copy(x, SymmetricMemory(), 0); },
  };
  for (const auto& call : calls) {
    EXPECT_THAT(refusal(call), HasSubstr("was moved to another one")) << "call " << &call - calls.data();
  }
  moved.all_reduce(x);
}

TEST(Operations, GoOnThroughAnotherHandleOfTheGroup) {
  run_inproc(2, [](Communicator& comm) {
    std::optional<Communicator> first(comm.split(0, comm.rank()));
    Communicator second = first->share();
    first.reset();
    Ints x = {1 + second.rank()};
    second.all_reduce(x);
    require(x[0] == 3, "the sum is " + std::to_string(x[0]));
  });
}

TEST(Operations, ReturnTheirResultsToo) {
  run_inproc(3, [](Communicator& comm) {
    const Ints x = {comm.rank(), 10};
    require(comm.all_reduced(x) == Ints{3, 30} && x == Ints{comm.rank(), 10}, "sums, and x as it was");
    require(comm.all_reduced(x, ReduceOp::kMax) == Ints{2, 10}, "largest");
    require(comm.all_reduced(std::span<const int32_t>(x), {.op = ReduceOp::kMin}) == Ints{0, 10}, "smallest");
    require(comm.all_gathered(x) == Ints{0, 10, 1, 10, 2, 10}, "a part of each");
    const std::vector<int64_t> counts = {1, 0, 2};
    require(comm.all_gathered(Ints(static_cast<size_t>(counts[static_cast<size_t>(comm.rank())]), comm.rank()),
                              {.counts = counts}) == Ints{0, 2, 2},
            "uneven parts");
    require(comm.reduce_scattered(Ints{1, 2, 3}) == Ints{3 * (comm.rank() + 1)}, "own part of the sum");
    require(comm.exchanged(Ints(3, comm.rank())) == Ints{0, 1, 2}, "an element of each");
    Ints y = x;
    comm.all_reduce(y, ReduceOp::kMax);
    require(y == Ints{2, 10}, "an op by itself");
    comm.all_reduce_async(y, ReduceOp::kSum).wait();
    require(y == Ints{6, 30}, "an op by itself, later");
  });
}

TEST(Operations, ThatReturnResultsRefuseWhatTheOthersRefuse) {
  const auto counts_of = [](std::vector<int64_t> counts) {
    return errors_of(2, [counts](Communicator& comm) { (void)comm.all_gathered(Ints{1}, {.counts = counts}); });
  };
  for (const auto& counts : std::vector<std::vector<int64_t>>{{-1, 2}, {1}, {1, 2, 3}})
    for (const auto& error : counts_of(counts)) EXPECT_EQ(error.code(), Code::kBadConfig) << error.message();
}

}  // namespace
}  // namespace herd
