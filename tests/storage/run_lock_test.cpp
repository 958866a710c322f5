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
