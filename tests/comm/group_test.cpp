// What a group does at its edges: when it is made, when it closes, when the machine lets it down, when memory comes and
// goes while operations run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <latch>
#include <thread>

#include "herd/comm/context.h"
#include "herd/memory/shared_memory.h"
#include "herd/transport/local_transport.h"
#include "herd/transport/thread_courier.h"
#include "tests/comm/errors_of.h"
#include "tests/support/expect_error.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing_support::errors_of;

// Comes late out of the last step in which the ranks meet before they have a communicator.
class LateCourier final : public transport::Courier {
 public:
  LateCourier(std::shared_ptr<transport::ThreadHub> hub, Rank rank) : inner_(std::move(hub), rank) {}
  std::string_view name() const override { return inner_.name(); }
  Rank rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void send(Rank to, const std::string& key, const transport::Parcel& parcel) override { inner_.send(to, key, parcel); }
  transport::Parcel receive(Rank from, const std::string& key, SteadyTime deadline) override {
    auto parcel = inner_.receive(from, key, deadline);
    if (key == "group1/verdict") std::this_thread::sleep_for(50ms);
    return parcel;
  }
  transport::PeerState state(Rank peer) override { return inner_.state(peer); }
  std::string describe(Rank peer) override { return inner_.describe(peer); }
  int exit_descriptor(Rank peer) override { return inner_.exit_descriptor(peer); }
  uint32_t exit_events(Rank peer) override { return inner_.exit_events(peer); }

 private:
  transport::ThreadCourier inner_;
};

TEST(World, IsMadeOnEveryRank_ThoughOneFailsItAtOnce_AndSaysSoAtTheFirstOperation) {
  const auto hub = std::make_shared<transport::ThreadHub>(2);
  std::atomic<int> ended{0};
  const auto join = [&](std::unique_ptr<transport::Courier> courier) {
    return Communicator(std::make_shared<transport::LocalTransport>(std::move(courier), steady_clock::now() + 10s));
  };
  std::thread first([&] {
    Communicator world = join(std::make_unique<transport::ThreadCourier>(hub, 0));
    world.abort("changed its mind");
    while (ended == 0) std::this_thread::sleep_for(1ms);
  });
  std::thread second([&] {
    try {
      Communicator world = join(std::make_unique<LateCourier>(hub, 1));
      try {
        world.barrier();
        ADD_FAILURE() << "a barrier of a failed group ended well";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kAborted);
        EXPECT_THAT(error.what(), HasSubstr("changed its mind"));
      }
    } catch (const Error& error) {
      ADD_FAILURE() << "the constructor threw " << error.what();
    }
    ended = 1;
  });
  first.join();
  second.join();
}

TEST(Group, SaysWhichOperationDiffers_WhenItClosesAndNoOperationMadeTheRanksMeet) {
  testing::internal::CaptureStderr();
  std::latch called(2);
  run_inproc(2, [&](Communicator& comm) {
    std::vector<float> x(8);
    comm.barrier();
    comm.broadcast(x, comm.rank());  // each is its own root, and waits for nobody
    called.arrive_and_wait();        // else the first to close could find it while the other calls
  });
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("operation #2 of group \"world\" differs between ranks; found when rank"));
  EXPECT_THAT(text, HasSubstr("rank 0 calls broadcast #2 (fp32 x 8, root 0"));
  EXPECT_THAT(text, HasSubstr("rank 1 calls broadcast #2 (fp32 x 8, root 1"));
}

TEST(Group, FailsOnAllRanks_WhenOneRunsIntoAnyException) {
  for (const bool asynchronous : {false, true}) {
    const auto errors = errors_of(2, [&](Communicator& comm) {
      std::vector<float> x(100);
      comm.barrier();
      if (comm.rank() == 1) {
        comm::CommunicatorTestAccess::group(comm).executor().fault().skip_turn = []() -> bool {
          throw std::runtime_error("no more memory for what it wants");
        };
      }
      if (asynchronous)
        comm.all_reduce_async(x, {.deadline = 5s}).wait();
      else
        comm.all_reduce(x, {.deadline = 5s});
    });
    for (const Error& error : errors) {
      EXPECT_EQ(error.code(), Code::kBug);
      EXPECT_THAT(error.what(), HasSubstr("rank 1: no more memory for what it wants"));
    }
  }
}

TEST(Group, MemoryMayComeAndGo_WhileOperationsOnOtherMemoryRun) {
  run_inproc(2, [](Communicator& comm) {
    constexpr int64_t kBytes = 1 << 20;
    SymmetricMemory kept = comm.allocate_symmetric(kBytes);
    for (int round = 0; round < 40; ++round) {
      std::fill(kept.span<float>().begin(), kept.span<float>().end(), 1.f);
      SymmetricMemory other = comm.allocate_symmetric(kBytes);
      std::fill(other.span<float>().begin(), other.span<float>().end(), 2.f);
      Work running = comm.all_reduce_async(kept.span<float>(), {.algorithm = "direct_push"});
      SymmetricMemory unused = comm.allocate_symmetric(4096);
      Work next = comm.all_reduce_async(other.span<float>(), {.algorithm = "direct_push"});
      unused = {};
      running.wait();
      next.wait();
      if (kept.span<float>()[1000] != 2 || other.span<float>()[1000] != 4) throw std::runtime_error("sums");
      comm.barrier();  // both are read: other may go
    }
  });
}

// Returns the bytes of all shared memory of groups that this process has.
int64_t bytes_of_groups() {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    struct stat info {};
    if (std::filesystem::read_symlink(entry.path(), closed).string().starts_with("/memfd:herd:group") &&
        stat(entry.path().c_str(), &info) == 0)
      bytes += info.st_blocks * 512;
  }
  return bytes;
}

TEST(Group, HoldsLittleMemory_UntilLargeMessagesNeedIt) {
  if (!SharedMemory::commits_without_descriptor()) GTEST_SKIP() << "this kernel commits all memory at once";
  constexpr int kGroups = 50;
  run_inproc(2, [](Communicator& world) {
    std::vector<Communicator> groups;
    for (int i = 0; i < kGroups; ++i) groups.push_back(world.split(0, 0, "one of many"));
    std::vector<float> small(100, 1), large(1 << 20, 1);
    for (Communicator& group : groups) group.all_reduce(small);
    world.barrier();
    EXPECT_LT(bytes_of_groups(), kGroups * int64_t{512 << 10});
    for (const char* algorithm : {"staged", "ring"}) {
      std::fill(large.begin(), large.end(), 1.0F);
      groups[7].all_reduce(large, {.algorithm = algorithm});
      EXPECT_EQ(large.back(), 2);
    }
    std::vector<float> whole(2 << 20);
    groups[8].all_gather(large, whole);
    EXPECT_EQ(whole[0], 2);
    if (world.rank() == 0) groups[9].send(large, 1);
    if (world.rank() == 1) groups[9].receive(large, 0);
    world.barrier();
  });
}

TEST(GroupOfMembers, IsMadeByItsMembersAlone_InTheirOrder_AgainUnderTheSameName) {
  run_inproc(4, [](Communicator& world) {
    if (world.rank() == 1) return;  // an outsider does nothing at all
    for (int round = 0; round < 3; ++round) {
      Communicator group = world.group({3, 0, 2}, "odd");
      std::vector<int64_t> ranks(3);
      group.all_gather(std::vector<int64_t>{world.rank()}, ranks);
      if (ranks != std::vector<int64_t>{3, 0, 2}) throw Error(Code::kBug, "order");
      if (group.rank() != (world.rank() == 3 ? 0 : world.rank() == 0 ? 1 : 2)) throw Error(Code::kBug, "rank");
    }
  });
}

TEST(GroupOfMembers, FailsByItself) {
  run_inproc(3, [](Communicator& world) {
    if (world.rank() < 2) {
      Communicator pair = world.group({0, 1}, "pair");
      std::vector<int64_t> x(1);
      EXPECT_THROW(pair.receive(x, 1 - pair.rank(), 0, {.deadline = 20ms}), Error);
      EXPECT_THROW(pair.barrier(), Error);
    }
    world.barrier();
  });
}

TEST(GroupOfMembers, RefusesAnOutsiderAndARankTwice) {
  run_inproc(2, [](Communicator& world) {
    EXPECT_ERROR(world.group({1 - world.rank()}, "other"), Code::kBadConfig, "is no member of \"other\"");
    EXPECT_ERROR(world.group({0, 0}, "twice"), Code::kBadConfig, "rank 0 is twice");
    EXPECT_ERROR(world.group({0, 2}, "beyond"), Code::kBadConfig, "group: member");
  });
}

TEST(WorldOverAStore, JoinsTheRanksThatMeetInIt) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      Communicator world = Communicator::create({.store = store, .rank = rank, .world_size = 3, .deadline = 10s});
      EXPECT_EQ(world.rank(), rank);
      std::vector<int64_t> x(1000, rank);
      world.all_reduce(x);
      EXPECT_EQ(x, std::vector<int64_t>(1000, 3));
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST(WorldOverAStore, NamesTheRankThatDoesNotCome) {
  EXPECT_ERROR(
      Communicator::create({.store = std::make_shared<MemoryStore>(), .rank = 0, .world_size = 2, .deadline = 100ms}),
      Code::kTimeout, "rank 1 never arrived");
}

}  // namespace
}  // namespace herd
