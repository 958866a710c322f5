// herd run with real processes: statuses, signals, restarts, orphans, several nodes.
#include "herd/launch/launcher.h"
#include "herd/launch/cores.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <random>
#include <sstream>
#include <thread>

#include "child_process.h"
#include "herd/base/error.h"
#include "herd/launch/job_token_file.h"
#include "herd/launch/stop_request.h"
#include "herd/transport/network_interface.h"
#include "herd/transport/wire.h"
#include "tests/support/temporary_folder.h"

namespace herd::launch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kBinaries = std::getenv("HERD_BINARY_DIR") ? std::getenv("HERD_BINARY_DIR") : ".";
const std::string kHerd = kBinaries + "/herd", kRank = kBinaries + "/tests/launch_rank_program";
const std::map<std::string, std::string> kToken = {{"HERD_TOKEN", "a token of the tests, which no other program has"}};

std::vector<std::string> herd_run(std::vector<std::string> options, std::vector<std::string> program) {
  options.insert(options.begin(), {kHerd, "run"});
  options.insert(options.end(), program.begin(), program.end());
  return options;
}

// Processes whose command line holds the text.
int processes_with(const std::string& text) {
  int found = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    std::ifstream file(entry.path() / "cmdline");
    std::string line((std::istreambuf_iterator<char>(file)), {});
    std::replace(line.begin(), line.end(), '\0', ' ');
    found += line.find(text) != std::string::npos;
  }
  return found;
}
bool holds(const std::function<bool()>& condition, Clock::duration timeout = 60s) {
  for (const auto until = Clock::now() + timeout; !condition(); std::this_thread::sleep_for(10ms)) {
    if (Clock::now() > until) return false;
  }
  return true;
}
bool gone(const std::string& text) {
  return holds([&] { return processes_with(text) == 0; });
}
// The processes that a launcher has started as guardians, by the name that these give themselves; the living alone.
std::vector<pid_t> guardians_of(pid_t launcher) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    std::ifstream file(entry.path() / "stat");
    std::string pid, name, state, parent;
    if (file >> pid >> name >> state >> parent && name == "(herd-guardian)" && state != "Z" &&
        parent == std::to_string(launcher))
      found.push_back(std::stoi(pid));
  }
  return found;
}
std::string marker() {  // unique in command lines
  static int number = 0;
  return "9" + std::to_string(getpid()) + "0" + std::to_string(number++);
}

// A port that nothing listens at, below those that the system gives to whoever names none, as all other tests do: none
// of them can take it before the launcher does.
std::string free_address() {
  static std::mt19937 random(std::random_device{}());
  for (;;) {
    const auto port = static_cast<uint16_t>(10'000 + random() % 20'000);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (is_free) return "127.0.0.1:" + std::to_string(port);
  }
}
// Whether a socket of this host listens at the port of the address; asks no connection of it.
bool listens(const std::string& address) {
  std::ostringstream port;
  port << ':' << std::uppercase << std::hex << std::setw(4) << std::setfill('0')
       << std::stoi(address.substr(address.rfind(':') + 1)) << ' ';
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      const size_t local = line.find(port.str());
      if (local != std::string::npos && local < 48 && line.find(" 0A ") != std::string::npos) return true;
    }
  }
  return false;
}
std::vector<std::string> node(int rank, const std::string& address, std::vector<std::string> program,
                              int restarts = 0) {
  return herd_run({"-n", "2", "--nnodes", "2", "--node-rank", std::to_string(rank), "--rendezvous", address,
                   "--max-restarts", std::to_string(restarts)},
                  std::move(program));
}

bool appears(const std::filesystem::path& path) {
  return holds([&] { return std::filesystem::exists(path); });
}

TEST(HerdRun, RanksMeetAndLinesCarryTheRank) {
  ChildProcess job(herd_run({"-n", "3"}, {kRank, "meet"}));
  EXPECT_EQ(job.wait(), 0);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_THAT(job.output(), HasSubstr("[" + number + "] rank " + number + " of 3 on node 0 met by herd run: sum 30"));
  }
}

TEST(HerdRun, SaysAtOnceThatLoopbackIsDown) {
  if (ChildProcess({"unshare", "-n", "true"}).wait() != 0) GTEST_SKIP() << "no network namespace can be made here";
  ChildProcess job({"unshare", "-n", kHerd, "run", "-n", "2", "--", "true"});
  EXPECT_EQ(job.wait(), 2) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("cannot reach itself at 127.0.0.1"));
  EXPECT_THAT(job.output(), HasSubstr("fix: ip link set lo up"));
}

TEST(HerdRun, ASecondWorldOfARankIsRefused_WithTheWayToMoreGroups) {
  for (const auto& [mode, what] : {std::pair("creates-twice", "which is this process"),
                                   {"creates-again", "calls Communicator::create() a second time"}}) {
    ChildProcess job(herd_run({"-n", "2"}, {kRank, mode}));
    EXPECT_EQ(job.wait(), 1) << mode;
    EXPECT_THAT(
        job.output(),
        AllOf(HasSubstr(what), HasSubstr("fix: keep the first communicator, and make more groups of it by split()")))
        << mode;
  }
}

TEST(HerdRun, StopsReadingOptionsAtTheProgram) {
  ChildProcess job(herd_run({"-n", "1"}, {"echo", "-n", "--max-restarts=3", "--", "-h"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.output(), "--max-restarts=3 -- -h\n");
}

TEST(HerdRun, NamesAnOptionThatItDoesNotHave) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--max-restart", "2", "-n", "1"}, {"-n", "1", "--max-restart=2", "--"}, {"-q", "1"}}) {
    ChildProcess job(herd_run(options, {"echo", "-n", "hello"}));
    EXPECT_EQ(job.wait(), 2);
    EXPECT_THAT(job.output(),
                HasSubstr("was not expected: " + std::string(options[0] == "-q" ? "-q" : "--max-restart")));
  }
}

TEST(HerdRun, RanksRunTheAlgorithmsOfTheTopologyThatIsGiven) {
  const std::vector<std::string> bench = {kHerd,     "bench", "all_reduce", "--algorithm", "torus_3d",
                                          "--bytes", "64KiB", "--json",     "--seconds",   "0.001"};
  ChildProcess job(herd_run({"-n", "8", "--topology", "torus:2x2x2"}, bench));
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output(), AllOf(HasSubstr("\"algorithm\":\"torus_3d\""), HasSubstr("\"wrong\":0")));
  ChildProcess told(herd_run({"-n", "8"}, bench), {{"HERD_TOPOLOGY", "torus:2x2x2"}});
  EXPECT_EQ(told.wait(), 0) << told.output();
}

TEST(HerdRun, RefusesATopologyOfOtherRanksBeforeAnyStarts) {
  ChildProcess job(herd_run({"-n", "6", "--topology", "torus:2x2x2"}, {"echo", "started"}));
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.output(), HasSubstr("has 8 ranks, but the job has 6"));
  EXPECT_THAT(job.output(), Not(HasSubstr("started")));
}

TEST(HerdRun, RanksRefuseATopologyOfOtherHosts) {
  if (transport::ucx_version().empty()) GTEST_SKIP() << "this build has no UCX";
  ChildProcess job(herd_run({"-n", "2", "--topology", "hosts:1x2"}, {kHerd, "bench", "barrier"}),
                   {{"HERD_TRANSPORT", "ucx"}, {"HERD_TRUSTED_NETWORK", "1"}});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.output(), HasSubstr("has ranks 0 and 1 on one host, but they run on two"));
  EXPECT_THAT(job.output(), HasSubstr("placement 0 1"));
}

TEST(HerdRun, UsesUcxOnlyWhereTheNetworkIsTrusted_AndSaysSo) {
  if (transport::ucx_version().empty()) GTEST_SKIP() << "this build has no UCX";
  if (transport::has_rdma()) GTEST_SKIP() << "this host has RDMA";
  const std::vector<std::string> bench = {kHerd, "bench", "all_reduce", "--bytes", "4KiB", "--seconds", "0.001"};
  ChildProcess job(herd_run({"-n", "2"}, bench), {{"HERD_TRANSPORT", "ucx"}});
  EXPECT_EQ(job.wait(), 2) << job.output();
  EXPECT_THAT(job.output(), AllOf(HasSubstr("HERD_TRANSPORT=ucx neither encrypts nor authenticates"),
                                  HasSubstr("HERD_TRUSTED_NETWORK is not 1"), HasSubstr("fix: HERD_TRANSPORT=tcp")));
  ChildProcess trusted(herd_run({"-n", "2"}, bench), {{"HERD_TRANSPORT", "ucx"}, {"HERD_TRUSTED_NETWORK", "1"}});
  EXPECT_EQ(trusted.wait(), 0) << trusted.output();
  EXPECT_THAT(
      trusted.output(),
      HasSubstr("between hosts: ucx, neither encrypted nor authenticated: the network is declared trusted, on lo"));
  std::vector<std::string> alone = bench;  // its own ranks, which loopback joins
  alone.insert(alone.end(), {"--transport", "ucx"});
  ChildProcess refused(alone);
  EXPECT_EQ(refused.wait(), 2) << refused.output();
  EXPECT_THAT(refused.output(), HasSubstr("HERD_TRUSTED_NETWORK is not 1"));
  EXPECT_EQ(ChildProcess(alone, {{"HERD_TRUSTED_NETWORK", "1"}}).wait(), 0);
}

TEST(HerdRun, ReturnsTheStatusOfTheRankThatFailed) {
  ChildProcess job(herd_run({"-n", "2"}, {"sh", "-c", "[ $HERD_RANK = 1 ] && exit 42; sleep 30"}));
  EXPECT_EQ(job.wait(), 42);
  EXPECT_THAT(job.output(), HasSubstr("the job failed: rank 1 (process "));
  EXPECT_THAT(job.output(), HasSubstr("exited with status 42"));
}

TEST(HerdRun, DividesTheCoresAmongRanks) {
  ChildProcess alone(herd_run({"-n", "1"}, {"sh", "-c", "echo $OMP_NUM_THREADS $HERD_THREADS"}),
                     {{"OMP_NUM_THREADS", "3"}});
  EXPECT_EQ(alone.wait(), 0);
  EXPECT_EQ(alone.output(), "3 3\n");
  ChildProcess crowd(herd_run({"-n", "1", "--threads", "2"}, {"sh", "-c", "echo $OMP_NUM_THREADS $HERD_THREADS"}));
  EXPECT_EQ(crowd.wait(), 0);
  EXPECT_EQ(crowd.output(), "2 2\n");
  ChildProcess own(herd_run({"-n", "1"}, {"sh", "-c", "echo $OMP_NUM_THREADS $HERD_THREADS"}),
                   {{"OMP_NUM_THREADS", "3"}, {"HERD_THREADS", "4"}});
  EXPECT_EQ(own.wait(), 0);
  EXPECT_EQ(own.output(), "3 4\n") << "what is set stays";
  ChildProcess shared(
      {"env", "-u", "OMP_NUM_THREADS", kHerd, "run", "-n", "2", "sh", "-c", "echo $OMP_NUM_THREADS $HERD_THREADS"});
  EXPECT_EQ(shared.wait(), 0);
  const std::string each = std::to_string(std::max(1, usable_cores() / 2));
  EXPECT_THAT(shared.output(), HasSubstr("[1] " + each + " " + each + "\n"));
}

TEST(HerdRun, TakesTheFirstThreadsOfAList_AndRefusesWhatIsNoNumberOfThreads) {
  const auto run = [](const std::string& given) {
    ChildProcess job(herd_run({"-n", "1"}, {"sh", "-c", "echo \"$OMP_NUM_THREADS\" $HERD_THREADS"}),
                     {{"OMP_NUM_THREADS", given}, {"HERD_THREADS", ""}});
    const int status = job.wait();
    return std::to_string(status) + " " + job.output();
  };
  const std::string cores = std::to_string(usable_cores());
  EXPECT_EQ(run(""), "0 " + cores + " " + cores + "\n") << "empty counts as unset";
  EXPECT_EQ(run("4,2"), "0 4,2 4\n");
  for (const char* wrong : {"all", "0", "1.5", "-2", "4,", "4,x", "99999999999"}) {
    EXPECT_THAT(run(wrong), AllOf(testing::StartsWith("2 herd: kBadConfig: OMP_NUM_THREADS=\"" + std::string(wrong)),
                                  HasSubstr("fix: OMP_NUM_THREADS=4")));
  }
}

TEST(HerdRun, AnEmptyTMPDIRCountsAsUnset) {
  ChildProcess job(herd_run({"-n", "1"}, {"echo", "ran"}), {{"TMPDIR", ""}});
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_EQ(job.output(), "ran\n");
}

TEST(HerdRun, RefusesToStartAJobInEachRankOfAnotherLauncher) {
  const std::map<std::string, std::string> torchrun = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"GROUP_RANK", "1"}, {"LOCAL_WORLD_SIZE", "1"}};
  ChildProcess second(herd_run({"-n", "1"}, {"echo", "started"}), torchrun);
  EXPECT_EQ(second.wait(), 2);
  EXPECT_THAT(second.output(),
              AllOf(HasSubstr("torchrun has started this process as rank 1 of 2 (RANK=1, WORLD_SIZE=2)"),
                    HasSubstr("let the other launcher start the ranks: echo started"), Not(HasSubstr("\nstarted"))));
  ChildProcess inner(herd_run({"-n", "2"}, herd_run({"-n", "1"}, {"echo", "started"})));
  EXPECT_EQ(inner.wait(), 2);
  EXPECT_THAT(inner.output(), HasSubstr("herd run has started this process as rank "));
  ChildProcess alone(herd_run({"-n", "1"}, herd_run({"-n", "1"}, {"echo", "started"})));
  EXPECT_EQ(alone.wait(), 0) << alone.output();
  EXPECT_EQ(alone.output(), "started\n");
}

TEST(HerdRun, RunsWithoutStandardStreams) {
  TemporaryFolder folder;
  for (const char* closed : {"<&- >&- 2>&-", "<&-", ">&- 2>&-"}) {
    const std::string file = folder / "ran";
    std::filesystem::remove(file);
    const std::string command = kHerd + " run -n 2 " + kRank + " meet " + closed + " && " + kHerd +
                                " run -n 1 sh -c 'echo x; echo y >&2; sleep 0.5; echo done > " + file + "' " + closed;
    ChildProcess job({"sh", "-c", command});
    EXPECT_EQ(job.wait(), 0) << closed << ": " << job.output();
    EXPECT_TRUE(std::filesystem::exists(file)) << closed;
  }
}

TEST(HerdRun, AFullStandardOutputIsAnErrorAtTheEnd) {
  ChildProcess job({"sh", "-c", kHerd + " run -n 1 sh -c 'echo a; sleep 0.2; echo b; echo end >&2' > /dev/full"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.output(),
              AllOf(HasSubstr("the standard output can't be written: No space left on device; the job goes on"),
                    HasSubstr("end\n"), HasSubstr("lines of the ranks are lost")));
  ChildProcess read(
      {"sh", "-c",
       "{ " + kHerd + " run -n 1 sh -c 'echo a; sleep 0.2; echo b; sleep 0.2'; echo status $? >&2; } | head -1"});
  EXPECT_EQ(read.wait(), 0);
  EXPECT_THAT(read.output(), AllOf(HasSubstr("a\n"), HasSubstr("status 0"), Not(HasSubstr("lost"))));
}

TEST(HerdRun, AFullLogIsAnErrorAtTheEnd) {
  TemporaryFolder folder;
  const std::string job_of = kHerd + " run -n 2 --log-dir " + folder.path().string();
  ChildProcess job(
      {"sh", "-c",  // files of at most 2 KiB: writing more fails as on a full disk
       "trap '' XFSZ; ulimit -f 4; exec " + job_of + " sh -c 'for line in $(seq 1000); do echo $line; done'"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.output(), AllOf(HasSubstr("[1] 1000\n"), HasSubstr("lines are missing in the logs beside "),
                                  HasSubstr("rank0.log, which can't be written: File too large")));
}

TEST(HerdRun, DoesNotHangWhenARankDiesBeforeItConnects) {
  const auto started = Clock::now();
  ChildProcess job(herd_run({"-n", "3"}, {kRank, "dies-before-it-connects"}));
  EXPECT_EQ(job.wait(), 7);
  EXPECT_LT(Clock::now() - started, 10s);
  EXPECT_THAT(job.output(), HasSubstr("kPeerLost: rank 2 (process "));  // what the other ranks were told
}

TEST(HerdRun, ReportsWhoWasWhereAndTheCauseLast) {
  ChildProcess job(herd_run({"-n", "2"}, {kRank, "killed-in-operation"}));
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  const std::string& text = job.output();
  EXPECT_THAT(text, AllOf(HasSubstr("in \"all_reduce \"a\"\""), HasSubstr("in \"all_reduce \"b\"\"")));
  EXPECT_THAT(text, HasSubstr("furthest behind: rank 1 in"));
  const size_t cause = text.find("the job failed: rank 1 (process ");
  ASSERT_NE(cause, std::string::npos);
  EXPECT_EQ(text.find('\n', cause), text.size() - 1);
  EXPECT_THAT(text.substr(cause), HasSubstr("killed by signal 9"));
}

TEST(HerdRun, GoesOnWithoutAKilledWorker_WhileItsServersAndAQuorumLive) {
  const auto expect_end = [](const std::vector<std::string>& options, const std::string& victims, int status,
                             const auto& output) {
    std::vector<std::string> words = {"-n", "3"};
    words.insert(words.end(), options.begin(), options.end());
    ChildProcess job(herd_run(words, {kRank, "pushes", victims}));
    EXPECT_EQ(job.wait(), status) << job.output();
    EXPECT_THAT(job.output(), output) << victims;
  };
  expect_end({"--survive", "2"}, "2", 0,
             AllOf(HasSubstr("was killed by signal 9 (Killed); the job goes on, ranks left: 2"),
                   HasSubstr("[0] rank 0 took all steps"), HasSubstr("[1] rank 1 took all steps"),
                   Not(HasSubstr("the job failed"))));
  expect_end({"--survive", "2"}, "12", 137,
             AllOf(HasSubstr("; too few for --survive, ranks left: 1"), HasSubstr("the job failed: rank")));
  expect_end({"--survive", "2"}, "0", 137, AllOf(HasSubstr("the job failed: rank 0"), Not(HasSubstr("goes on"))));
  expect_end({"--survive", "2", "--servers", "0,2"}, "2", 137, HasSubstr("the job failed: rank 2"));
  expect_end({}, "2", 137, HasSubstr("the job failed: rank 2"));
}

TEST(HerdRun, RefusesAQuorumThatItCannotHave) {
  const auto expect_refused = [](const std::vector<std::string>& options, const std::string& rule) {
    ChildProcess job(herd_run(options, {kRank, "meet"}), kToken);
    EXPECT_EQ(job.wait(), 2);
    EXPECT_THAT(job.output(), HasSubstr("--survive " + rule));
  };
  expect_refused({"-n", "2", "--survive", "3"}, "3 must be from 1 to the 2 ranks of -n");
  expect_refused({"-n", "2", "--survive", "-1"}, "-1 must be from 1 to the 2 ranks of -n");
  expect_refused({"-n", "2", "--survive", "1", "--servers", "2"}, "1 with --servers 2, but ranks are from 0");
  expect_refused({"-n", "2", "--nnodes", "2", "--rendezvous", "127.0.0.1:1", "--survive", "1"},
                 "1 counts the ranks of one node, but --nnodes is 2");
}

TEST(HerdRun, StartsTheWholeJobAgain) {
  ChildProcess job(herd_run({"-n", "2", "--max-restarts", "2"}, {kRank, "fails-once"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.count("sum 10, restart 0"), 2);
  EXPECT_EQ(job.count("sum 10, restart 1"), 2);
  EXPECT_EQ(job.count("restart 2"), 0);
}

TEST(HerdRun, GivesUpAfterTheLastRestart) {
  ChildProcess job(herd_run({"-n", "1", "--max-restarts", "1"}, {kRank, "fails"}));
  EXPECT_EQ(job.wait(), 5);
  EXPECT_EQ(job.count("the job failed"), 2);
}

TEST(HerdRun, PausesLongerBeforeEachRestart_AndASignalEndsThePause) {
  const auto began = Clock::now();
  ChildProcess job(herd_run({"-n", "1", "--max-restarts", "9"}, {"sh", "-c", "exit 5"}));
  ASSERT_TRUE(job.wait_for("starting again (3 of at most 9) in 4 s")) << job.output();
  EXPECT_GE(Clock::now() - began, 3s);
  job.kill(SIGTERM);
  const auto asked = Clock::now();
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_LT(Clock::now() - asked, 3s);
}

TEST(HerdRun, ARequestThatCannotBeMetIsNotStartedAgain) {
  ChildProcess job(herd_run({"-n", "2", "--max-restarts", "3"}, {"sh", "-c", "echo started; exit 2"}));
  EXPECT_EQ(job.wait(), 2);
  EXPECT_LE(job.count("] started"), 2) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("not started again: status 2"));
}

TEST(HerdRun, AGuardianThatIsKilledIsReplaced) {
  const std::string mark = marker();
  ChildProcess job(herd_run({"-n", "2"}, {"sh", "-c", "sleep " + mark + " & echo up; wait"}));
  ASSERT_TRUE(job.wait_for("up", 2));
  for (int times = 1; times <= 2; ++times) {
    ASSERT_TRUE(holds([&] { return !guardians_of(job.pid()).empty(); }));  // it gives itself its name
    for (const pid_t guardian : guardians_of(job.pid())) kill(guardian, SIGKILL);
    ASSERT_TRUE(job.wait_for("takes its place", times)) << job.output();
  }
  // A shell that was forked for its sleep bears the shell's words until it has become the sleep.
  EXPECT_TRUE(holds([&] { return processes_with("sh -c sleep " + mark) == 4; })) << "launcher, guardian and two ranks";
  job.kill(SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(gone(mark));
}

TEST(HerdRun, RefusesMoreRanksThanThereIsRoomForBeforeAnyStarts) {
  ChildProcess many(herd_run({"-n", "1000000"}, {"echo", "started"}));
  EXPECT_EQ(many.wait(), 2);
  EXPECT_THAT(many.output(), AllOf(HasSubstr("-n 1000000: this node has room for"), HasSubstr("--most-ranks 1000000"),
                                   Not(HasSubstr("started"))));
  const std::string limited = "ulimit -n 100; exec " + kHerd + " run -n 10 ";
  ChildProcess few({"sh", "-c", limited + "true"}), told({"sh", "-c", limited + "--most-ranks 10 true"});
  EXPECT_EQ(few.wait(), 2);
  EXPECT_THAT(few.output(),
              HasSubstr("room for 9 ranks (open files (ulimit -n): 100, of which the launcher takes 64 and a rank 4)"));
  EXPECT_EQ(told.wait(), 0) << told.output();
}

TEST(HerdRun, SaysWhatTheLauncherKeepsOfTheOpenFiles) {
  ChildProcess none({"sh", "-c", "ulimit -n 64; exec " + kHerd + " run -n 2 true"});
  EXPECT_EQ(none.wait(), 2);
  EXPECT_THAT(none.output(), HasSubstr("room for 1 rank (open files (ulimit -n): 64, of which the launcher takes 64"));
}

TEST(HerdRun, PassesASignalOnAndLetsRanksSave) {
  for (const int signal : kStopSignals) {
    ChildProcess job(herd_run({"-n", "2"}, {kRank, "saves"}));
    ASSERT_TRUE(job.wait_for("met by", 2)) << job.output();
    job.kill(signal);
    EXPECT_EQ(job.wait(), 0) << strsignal(signal);
    EXPECT_EQ(job.count(" saved"), 2) << strsignal(signal);
    EXPECT_THAT(job.output(), HasSubstr("every rank ended with status 0"));
  }
}

TEST(HerdRun, ASignalThatComesTwiceAtOnceIsOneRequest) {
  ChildProcess job({"timeout", "1000", kHerd, "run", "-n", "2", "sh", "-c",
                    "trap 'sleep 0.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"});
  ASSERT_TRUE(job.wait_for("up", 2)) << job.output();
  job.kill(SIGTERM);  // as its own time being over: to its child, and then to its group
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.count("] saved"), 2) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("every rank ended with status 0"));
}

TEST(HerdRun, ATerminalThatClosesStopsNoJobUnderNohup) {
  ChildProcess job({"nohup", kHerd, "run", "-n", "1", "sh", "-c", "echo up; sleep 1; echo done"});
  ASSERT_TRUE(job.wait_for("up"));
  job.kill(SIGHUP);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.output(), HasSubstr("done\n"));
}

TEST(HerdRun, ServesSignalsWhileRanksStart) {
  TemporaryFolder folder;
  // Rank 3 signals: however busy the cores are, it has its share of them beside the launcher, which starts the others.
  ChildProcess job(herd_run({"-n", "200", "--log-dir", folder.path()},
                            {"sh", "-c", "[ $HERD_RANK = 3 ] && kill -TERM $PPID; exec sleep 100"}));
  EXPECT_EQ(job.wait(60), 128 + SIGTERM);
  EXPECT_FALSE(std::filesystem::exists(folder / "rank199.log")) << "all ranks were started after the signal";
  EXPECT_THAT(job.output(), HasSubstr("killed by signal 15"));
}

TEST(HerdRun, ServesSignalsWhileItWaitsForNodeZero) {
  ChildProcess job(node(1, free_address(), {kRank, "meet"}), kToken);
  ASSERT_TRUE(job.wait_for("waits for node 0"));
  job.kill(SIGTERM);
  EXPECT_EQ(job.wait(5), 128 + SIGTERM);
  EXPECT_THAT(job.output(), HasSubstr("stopped, while no rank ran"));
}

TEST(HerdRun, KillsRanksThatDoNotStopInTime) {
  ChildProcess job(
      herd_run({"-n", "2", "--grace", "0.3"}, {"sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"}));
  ASSERT_TRUE(job.wait_for("up", 2));
  job.kill(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
}

TEST(HerdRun, ASecondSignalKillsAtOnce) {
  ChildProcess job(herd_run({"-n", "1"}, {"sh", "-c", "trap '' TERM INT; echo up; while :; do sleep 0.1; done"}));
  ASSERT_TRUE(job.wait_for("up"));
  job.kill(SIGTERM);
  ASSERT_TRUE(job.wait_for("passed on"));
  std::this_thread::sleep_for(StopRequest::kSameRequest);
  job.kill(SIGINT);
  EXPECT_EQ(job.wait(10), 128 + SIGKILL);
}

TEST(HerdRun, AReaderThatStallsStopsNeitherRanksNorSignals) {
  TemporaryFolder folder;
  ChildProcess job(herd_run({"-n", "2"}, {kRank, "chatters", folder.path()}));  // nobody reads
  ASSERT_TRUE(appears(folder.path() / "talked")) << "its ranks stand still";
  job.kill(SIGTERM);
  EXPECT_TRUE(appears(folder.path() / "saved")) << "the signal did not arrive";
  EXPECT_EQ(job.wait(), 0);
}

TEST(HerdRun, AReaderThatComesBackHearsHowManyLinesItMissed) {
  TemporaryFolder folder;
  const std::string at = folder.path().string(), talked = at + "/talked", read = at + "/read";
  ChildProcess job({"bash", "-c",
                    kHerd + " run -n 1 -- sh -c 'head -c 12000000 /dev/zero | tr \"\\0\" x | fold -w 999; touch " +
                        talked + "; while [ ! -e " + read + " ]; do sleep 0.02; done' | { while [ ! -e " + talked +
                        " ]; do sleep 0.02; done; sed -n '/left out/{p;q}'; touch " + read + "; cat > " + at +
                        "/rest; }"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.output(), HasSubstr("lines are left out here, for nobody read them in time"));
  EXPECT_LT(job.output().size(), 200u);
}

TEST(HerdRun, EndsThoughItsReaderStallsForGood) {
  TemporaryFolder folder;
  const std::string fifo = folder.path() / "fifo", status = folder.path() / "status";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ChildProcess job({"sh", "-c",
                    kHerd + " run -n 1 -- " + kRank + " chatters " + folder.path().string() + " > " + fifo +
                        "; echo $? > " + status + ".new; mv " + status + ".new " + status});
  ASSERT_TRUE(appears(folder.path() / "talked"));
  const auto began = Clock::now();
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    std::string line((std::istreambuf_iterator<char>(file)), {});
    if (line.starts_with(kHerd) && line.find(folder.path().string()) != std::string::npos)
      kill(std::atoi(entry.path().filename().c_str()), SIGTERM);
  }
  ASSERT_TRUE(appears(status)) << "the launcher waits for its reader";
  EXPECT_LT(Clock::now() - began, 12s);
  std::string text;
  std::ifstream(status) >> text;
  EXPECT_EQ(text, "0");
  close(reader);
}

TEST(HerdRun, AReaderThatLeavesStopsNobody) {
  TemporaryFolder folder;
  const std::string marks = folder.path() / "marks";
  ChildProcess job({"bash", "-c",
                    kHerd +
                        " run -n 2 -- sh -c 'for i in $(seq 200); do echo line $i; done; sleep 0.3; echo more; "
                        "echo end >> " +
                        marks + "' 2>&1 | head -3; echo status ${PIPESTATUS[0]}"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.output(), HasSubstr("status 0\n"));
  std::string text;
  std::getline(std::ifstream(marks), text, '\0');
  EXPECT_EQ(text, "end\nend\n") << "a rank was ended";
}

TEST(HerdRun, ASlowReaderGetsEveryLine) {
  TemporaryFolder folder;
  ChildProcess job({"bash", "-c",
                    kHerd + " run -n 1 -- sh -c 'head -c 30000000 /dev/zero | tr \"\\0\" x | fold -w 999' | "
                            "{ sleep 2; wc -c; }"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.output(), HasSubstr(std::to_string(30'000'000 + 30'000'000 / 999 + 1) + "\n"));
}

TEST(HerdRun, LeavesNoOrphansWhenTheLauncherIsKilled) {
  const std::string mark = marker();
  ChildProcess job(herd_run({"-n", "2"}, {"sh", "-c", "sleep " + mark + " & echo up; wait"}));
  ASSERT_TRUE(job.wait_for("up", 2));
  EXPECT_GE(processes_with("sleep " + mark), 2);
  job.kill(SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(gone(mark));
}

TEST(HerdRun, LeavesNoOrphansOfARankThatEnded) {
  const std::string mark = marker();
  ChildProcess job(herd_run({"-n", "2"}, {"sh", "-c", "sleep " + mark + " & exit 0"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_TRUE(gone(mark));
}

TEST(HerdRun, EndsAStoppedRankWhenAnotherFails) {
  ChildProcess job(
      herd_run({"-n", "2"}, {"sh", "-c", "[ $HERD_RANK = 0 ] && { sleep 0.2; exit 9; }; echo up; kill -STOP $$"}));
  EXPECT_EQ(job.wait(), 9);
}

TEST(HerdRun, AStoppedLauncherOnlyDelaysItsRanks) {
  ChildProcess job(herd_run({"-n", "2"}, {"sh", "-c", "echo up; sleep 0.4; exec \"$0\" meet", kRank}));
  ASSERT_TRUE(job.wait_for("up", 2));
  job.kill(SIGSTOP);
  std::this_thread::sleep_for(1s);
  job.kill(SIGCONT);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.count("sum 10"), 2);
}

TEST(HerdRun, KeepsALogPerRankAndAttempt) {
  char name[] = "/tmp/herd-logs-XXXXXX";
  const std::string folder = mkdtemp(name);
  ChildProcess job(herd_run({"-n", "2", "--max-restarts", "1", "--log-dir", folder}, {kRank, "fails-once"}));
  EXPECT_EQ(job.wait(), 0);
  std::ifstream first(folder + "/rank1.log"), second(folder + "/rank1.restart1.log");
  std::string line;
  std::getline(first, line);
  EXPECT_EQ(line, "rank 1 of 2 on node 0 met by herd run: sum 10, restart 0");
  std::getline(second, line);
  EXPECT_EQ(line, "rank 1 of 2 on node 0 met by herd run: sum 10, restart 1");
  std::filesystem::remove_all(folder);
}

TEST(HerdRun, AppendsToNoLogThatIsALinkOrAPipe) {
  TemporaryFolder folder;
  write_text(folder / "victim", "mine");
  std::filesystem::create_directory(folder / "logs");
  const std::filesystem::path log = folder / "logs/rank0.log";
  for (const char* kind : {"link", "hard link", "pipe"}) {
    std::filesystem::remove(log);
    if (std::string(kind) == "link") std::filesystem::create_symlink(folder / "victim", log);
    if (std::string(kind) == "hard link") std::filesystem::create_hard_link(folder / "victim", log);
    if (std::string(kind) == "pipe") ::mkfifo(log.c_str(), 0600);
    ChildProcess job(herd_run({"-n", "1", "--log-dir", folder / "logs"}, {"echo", "words"}));
    EXPECT_NE(job.wait(), 0) << kind;
    EXPECT_THAT(job.output(), AllOf(HasSubstr("logs/rank0.log"), HasSubstr("fix:"))) << kind;
  }
  EXPECT_EQ(read_text(folder / "victim"), "mine");
}

TEST(HerdRun, TheAdviceForATokenMakesAFileThatItTakes) {
  TemporaryFolder folder;
  ChildProcess job(herd_run({"-n", "1", "--nnodes", "2", "--rendezvous", "127.0.0.1:4711"}, {"true"}));
  EXPECT_EQ(job.wait(), 2);
  const std::string output = job.output(), file = folder / "job.token";
  const size_t begin = output.find("fix: ") + 5, end = output.find(", copy");
  ASSERT_LT(begin, end) << output;
  std::string advice = output.substr(begin, end - begin);
  for (size_t at; (at = advice.find("FILE")) != std::string::npos;) advice.replace(at, 4, file);
  ASSERT_EQ(std::system(("umask 022; " + advice).c_str()), 0) << advice;
  EXPECT_EQ(read_token_file(file).size(), 64u) << advice;
}

TEST(HerdRun, SaysWhatCannotBeStarted) {
  ChildProcess job(herd_run({"-n", "2"}, {"/no/such/program"}));
  EXPECT_EQ(job.wait(), 2);
  EXPECT_THAT(job.output(), AllOf(HasSubstr("can't start \"/no/such/program\""), HasSubstr("fix:")));
}

// A control group with 96 MiB, or "" where this user may not make one.
std::string small_group() {
  const std::string name = "/herd-test-" + std::to_string(getpid());
  const std::pair<std::string, std::string> places[] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                                        {"/sys/fs/cgroup", "memory.max"}};
  for (const auto& [place, limit] : places) {
    std::error_code failed;
    if (!std::filesystem::exists(place) || !std::filesystem::create_directory(place + name, failed)) continue;
    std::ofstream(place + name + "/memory.swap.max") << 0;
    if (std::filesystem::exists(place + name + "/" + limit) && std::ofstream(place + name + "/" + limit)
                                                                   << 96'000'000 << std::flush) {
      return place + name;
    }
    std::filesystem::remove(place + name, failed);
  }
  return "";
}

TEST(HerdRun, SaysThatTheMemoryLimitKilledARankAndShowsItsTable) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "what the sanitizer itself takes is beyond the limit";
#endif
  const std::string group = small_group();
  if (group.empty()) GTEST_SKIP() << "no control group with a memory limit can be made here";
  ChildProcess job(
      {"sh", "-c", "echo $$ > " + group + "/cgroup.procs && exec \"$0\" run -n 2 -- \"$1\" eats-memory", kHerd, kRank});
  EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("the memory limit of the control group (91.6 MiB) killed 1 process(es)"));
  EXPECT_THAT(job.output(), HasSubstr("activations of rank 1: all there is"));
  std::error_code ignored;
  std::filesystem::remove(group, ignored);
}

TEST(HerdRun, TwoNodesAreOneJob) {
  const std::string address = free_address();
  ChildProcess first(node(0, address, {kRank, "meet"}), kToken), second(node(1, address, {kRank, "meet"}), kToken);
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_THAT(first.output(), HasSubstr("[1] rank 1 of 4 on node 0 met by herd run: sum 60"));
  EXPECT_THAT(second.output(), HasSubstr("[3] rank 3 of 4 on node 1 met by herd run: sum 60"));
}

TEST(HerdRun, AFailureOnOneNodeEndsAndRestartsBoth) {
  const std::string address = free_address();
  ChildProcess second(node(1, address, {kRank, "fails"}, 1), kToken),
      first(node(0, address, {kRank, "fails"}, 1), kToken);
  EXPECT_EQ(first.wait(), 5) << first.output();
  EXPECT_EQ(second.wait(), 5) << second.output();
  EXPECT_EQ(first.count("sum 60, restart 1"), 2);
  EXPECT_THAT(first.output(), HasSubstr("the job failed: rank 3 (process "));
}

TEST(HerdRun, AKilledLauncherOfAnotherNodeEndsTheJob) {
  const std::string address = free_address();
  ChildProcess first(node(0, address, {kRank, "stuck"}), kToken), second(node(1, address, {kRank, "stuck"}), kToken);
  ASSERT_TRUE(first.wait_for("sum 60", 2)) << first.output();
  second.kill(SIGKILL);
  EXPECT_EQ(first.wait(), 1) << first.output();
  EXPECT_THAT(first.output(), HasSubstr("the job failed: node 1 is gone"));
}

TEST(HerdRun, AJobOfOneNodeSendsAnotherNodeAwayAndBothSaySo) {
  const std::string address = free_address();
  ChildProcess first(herd_run({"-n", "1", "--rendezvous", address}, {"sh", "-c", "echo up; sleep 3"}), kToken);
  ASSERT_TRUE(first.wait_for("up")) << first.output();
  ChildProcess second(node(1, address, {kRank, "meet"}), kToken);
  EXPECT_EQ(second.wait(10), 2) << second.output();
  EXPECT_THAT(second.output(), AllOf(HasSubstr("runs a job of one node"), HasSubstr("fix: the same --nnodes")));
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_THAT(first.output(), HasSubstr("node 1 of a job of 2 nodes"));
}

TEST(HerdRun, ANodeThatIsStoppedWhileItWaitsTellsTheOthers) {
  const std::string address = free_address();
  ChildProcess first(node(0, address, {kRank, "meet"}), kToken);
  ASSERT_TRUE(first.wait_for("node 0 waits for node 1")) << first.output();
  first.kill(SIGTERM);
  EXPECT_EQ(first.wait(10), 128 + SIGTERM) << first.output();

  const auto three = [&](int rank) {
    return herd_run({"-n", "1", "--nnodes", "3", "--node-rank", std::to_string(rank), "--rendezvous", address},
                    {kRank, "meet"});
  };
  ChildProcess zero(three(0), kToken), one(three(1), kToken);
  ASSERT_TRUE(zero.wait_for("node 0 waits for node 2")) << zero.output();
  one.kill(SIGTERM);
  EXPECT_EQ(one.wait(10), 128 + SIGTERM) << one.output();
  EXPECT_EQ(zero.wait(10), 1) << zero.output();
  EXPECT_THAT(zero.output(), HasSubstr("node 1 has left the job: stopped by signal 15"));
}

// A node that can't start says so to the one that waits, whichever of its options is misspelt.
TEST(HerdRun, WhatANodesOptionsAreRefusedForReachesTheNodeThatWaits) {
  const std::string address = free_address();
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--nnodes", "2", "--node-rank", "1", "--rendezvous", address, "--max-restart", "2"}, "--max-restart"},
      {{"--nnode", "2", "--node-rank", "1", "--rendezvous", address}, "--nnode"},
      {{"--node-rank", "1", "--rendezvous", address}, "--node-rank 1 must be from 0 to below --nnodes 1"},
      {{"--nnodes", "2", "--node-rank", "1", "--rendezvous", address, "--grace", "soon"}, "--grace"}};
  for (const auto& [options, reason] : cases) {
    ChildProcess first(node(0, address, {kRank, "meet"}), kToken);
    ASSERT_TRUE(first.wait_for("node 0 waits for node 1")) << first.output();
    ChildProcess second(herd_run(options, {"--", kRank, "meet"}), kToken);
    EXPECT_EQ(second.wait(10) == 0, false) << second.output();
    EXPECT_EQ(first.wait(10), 2) << first.output();
    EXPECT_THAT(first.output(), AllOf(HasSubstr("node 1 has left the job before its start: "), HasSubstr(reason)));
  }
}

TEST(HerdRun, AKilledLauncherOfNodeZeroEndsTheOthers) {
  const std::string address = free_address();
  ChildProcess first(node(0, address, {kRank, "stuck"}), kToken), second(node(1, address, {kRank, "stuck"}), kToken);
  ASSERT_TRUE(second.wait_for("sum 60", 2)) << second.output();
  first.kill(SIGKILL);
  EXPECT_EQ(second.wait(), 1) << second.output();
  EXPECT_THAT(second.output(), HasSubstr("is gone"));
}

TEST(HerdRun, ASecondJobOnThePortIsRefusedAndTheFirstGoesOn) {
  const std::string address = free_address();
  ChildProcess first(node(0, address, {kRank, "meet"}), kToken);
  ASSERT_TRUE(holds([&] { return listens(address); }));
  ChildProcess intruder(node(0, address, {kRank, "meet"}),
                        {{"HERD_TOKEN", "the token of another job, as long as it has to be"}});
  EXPECT_EQ(intruder.wait(), 2);
  EXPECT_THAT(intruder.output(),
              AllOf(HasSubstr("is taken by process " + std::to_string(first.pid())), HasSubstr("fix:")));
  ChildProcess stranger(node(1, address, {kRank, "meet"}),
                        {{"HERD_TOKEN", "the token of another job, as long as it has to be"}});
  EXPECT_EQ(stranger.wait(), 2);
  EXPECT_THAT(stranger.output(), HasSubstr("refuses this job's token"));
  ChildProcess second(node(1, address, {kRank, "meet"}), kToken);
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_THAT(first.output(), HasSubstr("refused a connection"));
}

TEST(LaunchOptions, AreChecked) {
  const auto refusal = [](LaunchOptions options) -> std::string {
    try {
      launch_job(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kBadConfig);
      return error.message();
    }
    return "nothing thrown";
  };
  EXPECT_THAT(refusal({}), HasSubstr("no program"));
  EXPECT_THAT(refusal({.command = {"true"}, .ranks_per_node = 0}), HasSubstr("-n 0"));
  EXPECT_THAT(refusal({.command = {"true"}, .num_nodes = 2, .node_rank = 2}), HasSubstr("--node-rank 2"));
  EXPECT_THAT(refusal({.command = {"true"}, .num_nodes = 2}), HasSubstr("--rendezvous HOST:PORT"));
  EXPECT_THAT(refusal({.command = {"true"}, .num_nodes = 2, .rendezvous = "h:1"}), HasSubstr("--token-file"));
}

}  // namespace
}  // namespace herd::launch
