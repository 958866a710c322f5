// Who owns a run's folder: processes of one host, owners that die, and owners on another host.
#include "herd/storage/run_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "herd/base/log.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr RunLock::Times kQuick{.beat = 20ms, .lease = 300ms, .timeout = 900ms};

// Another process that owns `folder` until it is killed.
class OwnerProcess {
 public:
  explicit OwnerProcess(const std::filesystem::path& folder) {
    int ready[2];
    if (::pipe(ready) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      const RunLock lock(folder, kQuick);
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~OwnerProcess() { end(SIGKILL); }
  void end(int signal) {
    if (pid_ <= 0) return;
    ::kill(pid_, signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// An owner that is killed while a child of it still has the lock open, as when the system takes long to end it.
class DyingOwner {
 public:
  explicit DyingOwner(const std::filesystem::path& folder) {
    int ready[2], hold[2];
    if (::pipe(ready) != 0 || ::pipe(hold) != 0) std::abort();
    const pid_t owner = ::fork();
    if (owner == 0) {
      const RunLock lock(folder, kQuick);
      if (::fork() == 0) {
        ::close(hold[1]);
        char byte;
        while (::read(hold[0], &byte, 1) > 0) {
        }
        ::_exit(0);
      }
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::kill(owner, SIGKILL);
    ::waitpid(owner, nullptr, 0);
    for (const int end : {ready[0], ready[1], hold[0]}) ::close(end);
    hold_ = hold[1];
  }
  ~DyingOwner() { let_go(); }
  void let_go() {
    if (hold_ >= 0) ::close(hold_);
    hold_ = -1;
  }

 private:
  int hold_ = -1;
};

std::string record_of_another_host(int beat) {
  return R"({"format":"herd-lock","version":1,"id":"f00d","host":"far","kernel":"other","process":7,)"
         R"("since":"yesterday","beat":)" +
         std::to_string(beat) + "}\n";
}

// An owner on a host whose locks the file system does not share: all that is seen of it is the record, which is whole
// at all times.
class FarOwner {
 public:
  explicit FarOwner(const std::filesystem::path& lock) {
    write_text(lock, record_of_another_host(1000));
    thread_ = std::thread([this, lock] {
      for (int beat = 1001; !over_; ++beat) {
        std::this_thread::sleep_for(20ms);
        std::fstream(lock, std::ios::in | std::ios::out) << record_of_another_host(beat);
      }
    });
  }
  ~FarOwner() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

bool wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 500 && !holds(); ++i) std::this_thread::sleep_for(10ms);
  return holds();
}

TEST(RunLock, RefusesASecondOwner_AndNamesTheFirst) {
  TemporaryFolder root;
  OwnerProcess owner(root / "run");
  const std::string process = "process " + std::to_string(owner.pid()) + " on host ";
  EXPECT_ERROR(RunLock(root / "run", kQuick), Code::kBadConfig, "one job at a time owns a run's folder", process,
               "fix: another log.name");
  EXPECT_ERROR(refuse_owned_run(root / "run"), Code::kBadConfig, process);
  ::kill(owner.pid(), SIGSTOP);  // one that stands still owns it all the same
  std::this_thread::sleep_for(2 * kQuick.lease);
  EXPECT_ERROR(RunLock(root / "run", kQuick), Code::kBadConfig, process);
  RunLock other(root / "other", kQuick);
}

TEST(RunLock, ADeadOwnerLeavesNothingThatRefuses) {
  TemporaryFolder root;
  for (int round = 0; round < 3; ++round) {
    OwnerProcess owner(root / "run");
    owner.end(SIGKILL);
    EXPECT_FALSE(read_text(root / "run/lock").empty()) << "it could not clean up";
    refuse_owned_run(root / "run");
    const auto begin = Clock::now();
    { const RunLock lock(root / "run", {.beat = 20ms, .lease = 1h, .timeout = 1h}); }
    EXPECT_LT(Clock::now() - begin, 10s) << "nothing is waited for";
    EXPECT_TRUE(read_text(root / "run/lock").empty());
  }
}

TEST(RunLock, WaitsForAnOwnerThatIsEnding) {
  for (const bool only_looks : {true, false}) {
    TemporaryFolder root;
    DyingOwner owner(root / "run");
    const auto begin = Clock::now();
    std::thread later([&] {
      std::this_thread::sleep_for(300ms);
      owner.let_go();
    });
    std::string said;
    set_log_output([&](const std::string& line) { said += line; });
    if (only_looks)
      EXPECT_NO_THROW(refuse_owned_run(root / "run"));
    else
      EXPECT_NO_THROW(RunLock(root / "run", kQuick));
    set_log_output(nullptr);
    EXPECT_GE(Clock::now() - begin, 250ms);
    EXPECT_NE(said.find("waiting for up to 2 s: process "), std::string::npos) << said;
    later.join();
  }
}

TEST(RunLock, RefusesAnOwnerThatDoesNotEnd_AfterTwoSeconds) {
  TemporaryFolder root;
  const DyingOwner owner(root / "run");
  const auto begin = Clock::now();
  EXPECT_ERROR(RunLock(root / "run", kQuick), Code::kBadConfig, "is owned by process");
  EXPECT_GE(Clock::now() - begin, 2s);
}

// A rank whose launcher is gone is about to be ended by the guardian, though nothing has reached it yet.
TEST(RunLock, WaitsForAnOwnerWhoseParentIsGone) {
  TemporaryFolder root;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    if (::fork() == 0) {
      const RunLock lock(root / "run", kQuick);
      const pid_t self = ::getpid();
      if (::write(ready[1], &self, sizeof self) != sizeof self) ::_exit(1);
      for (;;) ::pause();
    }
    for (;;) ::pause();
  }
  pid_t rank = 0;
  ASSERT_EQ(::read(ready[0], &rank, sizeof rank), static_cast<ssize_t>(sizeof rank));
  EXPECT_ERROR(refuse_owned_run(root / "run"), Code::kBadConfig, "is owned by process " + std::to_string(rank));
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  std::thread guardian([rank] {
    std::this_thread::sleep_for(300ms);
    ::kill(rank, SIGKILL);
  });
  EXPECT_NO_THROW(RunLock(root / "run", kQuick));
  guardian.join();
  for (const int end : ready) ::close(end);
}

TEST(RunLock, RefusesAnOwnerOnAnotherHost_AsLongAsItsRecordChanges) {
  TemporaryFolder root;
  std::filesystem::create_directory(root / "run");
  const FarOwner owner(root / "run/lock");
  const RunLock::Times times{.beat = 20ms, .lease = 60s, .timeout = 90s};  // no beat of the owner comes so late
  EXPECT_ERROR(RunLock(root / "run", times), Code::kBadConfig, "process 7 on host far, since yesterday");
}

TEST(RunLock, TakesOverFromAnotherHost_WhenItsRecordStandsStillForTheLease) {
  TemporaryFolder root;
  std::filesystem::create_directory(root / "run");
  write_text(root / "run/lock", record_of_another_host(3));
  const auto begin = Clock::now();
  const RunLock lock(root / "run", kQuick);
  EXPECT_GE(Clock::now() - begin, kQuick.lease);
  EXPECT_NE(read_text(root / "run/lock").find("\"process\":" + std::to_string(::getpid())), std::string::npos);
}

TEST(RunLock, IsLost_WhenAnotherHostTookTheFolderOver_WhoseRecordStays) {
  TemporaryFolder root;
  {
    RunLock lock(root / "run", kQuick);
    std::this_thread::sleep_for(10 * kQuick.beat);
    EXPECT_FALSE(lock.lost());
    lock.check();
    // The other host goes on to write, since one write may fall between what this one reads and what it writes.
    ASSERT_TRUE(wait_until([&] {
      write_text(root / "run/lock", record_of_another_host(1));
      return lock.lost();
    }));
    EXPECT_ERROR(lock.check(), Code::kAborted, "no longer owns", "process 7 on host far", "fix:");
  }
  EXPECT_EQ(read_text(root / "run/lock"), record_of_another_host(1));
}

TEST(RunLock, IsLost_WhenItsFolderIsDeleted_AndTheNextOwnerGetsANewOne) {
  TemporaryFolder root;
  RunLock lock(root / "run", kQuick);
  std::filesystem::remove_all(root / "run");
  ASSERT_TRUE(wait_until([&] { return lock.lost(); }));
  const RunLock next(root / "run", kQuick);
  EXPECT_FALSE(next.lost());
}

}  // namespace
}  // namespace herd
