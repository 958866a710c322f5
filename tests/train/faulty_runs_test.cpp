// Random runs of herd train with a random fault each: none hangs, leaves anything behind or loses a checkpoint, each
// names its cause, and a plain start afterwards goes on to the losses of a run that nobody disturbed. A slice by
// default, 300 with HERD_FULL_TESTS=1; HERD_FAULTY_RUN=SEED:NUMBER is one of them again.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "faulty_run.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"

namespace herd::train {
namespace {

using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr int kPatience = 240;  // seconds in which anything ends, on a busy machine too

const std::string kHerd = fs::path(std::getenv("HERD_BINARY_DIR") ? std::getenv("HERD_BINARY_DIR") : ".") / "herd";

// No rank clips what it pushes to servers.
std::vector<std::string> overrides(int steps, bool clips) {
  std::vector<std::string> all = {"train.steps=" + std::to_string(steps), "train.batch=16", "train.eval_every=0",
                                  "checkpoint.every=5", "optimizer.schedule=constant"};
  if (!clips) all.push_back("optimizer.clip=0");
  return all;
}

// By steps done, of a run that nobody disturbs.
const std::vector<StepMetrics>& undisturbed(bool clips) {
  static std::map<bool, std::vector<StepMetrics>> all;
  auto& steps = all[clips];
  if (!steps.empty()) return steps;
  RunFolder folder;
  const Ended ended = folder.train("run", 2, overrides(kFaultySteps, clips));
  EXPECT_EQ(ended.status, 0) << ended.output;
  return steps = read_metrics(folder.root / "run/metrics.jsonl");
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) names.insert(entry.path().filename().string());
  return names;
}

class Scene {
 public:
  explicit Scene(FaultyRun& drawn) : drawn_(drawn), run_(folder_.root / "run"), temporary_(folder_.root / "temporary") {
    fs::create_directory(temporary_);
    shared_ = names_in("/dev/shm");
  }
  ~Scene() {
    for (const pid_t pid : Command::processes_with(folder_.root.string())) kill(pid, SIGKILL);
  }

  void play() {
    switch (drawn_.fault) {
      case Fault::kKill:
        return kill_or_restart(false);
      case Fault::kStop:
        return stop();
      case Fault::kSignal:
        return signal();
      case Fault::kFullDisk:
        return full_disk();
      case Fault::kStalledReader:
        return stalled_reader();
      case Fault::kSecondJob:
        return second_job();
      case Fault::kStranger:
        return stranger();
      case Fault::kTruncatedFile:
        return truncated_file();
      case Fault::kRestart:
        return kill_or_restart(true);
    }
  }

 private:
  bool clips() const { return drawn_.servers == Servers::kNone; }

  std::vector<std::string> command(int steps, const std::vector<std::string>& more = {}) const {
    auto keys = overrides(steps, clips());
    if (clips())
      keys.push_back("strategy.zero=" + std::to_string(drawn_.zero));
    else
      keys.push_back("strategy.sync=server");
    if (drawn_.servers == Servers::kDedicated) keys.push_back("strategy.dedicated_servers=1");
    auto words = folder_.command("run", drawn_.ranks(), keys);
    words.insert(words.begin(), {"/usr/bin/env", "TMPDIR=" + temporary_.string()});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Starts a job and waits until its step has come, or its end.
  Command begin(int steps, const std::vector<std::string>& more = {}, const fs::path& output = {}) {
    Command job(command(steps, more), output.empty() ? folder_.root / "output" : output);
    if (drawn_.step == 0) {
      usleep(static_cast<useconds_t>(drawn_.below(1'000'000)));
    } else {
      EXPECT_TRUE(within(kPatience, [&] { return lines_of(run_ / "metrics.jsonl") > drawn_.step || over(job.pid()); }))
          << "it never came to step " << drawn_.step << ": " << (output.empty() ? job.output() : "");
    }
    newest_ = newest_step();
    note_processes();
    return job;
  }

  int end_of(const Command& job, int patience = kPatience) {
    note_processes();
    const auto status = ended_within(patience, job.pid());
    EXPECT_TRUE(status.has_value()) << "it hangs: " << job.output();
    if (!status) kill(job.pid(), SIGKILL), waitpid(job.pid(), nullptr, 0);
    EXPECT_TRUE(within(60, [&] { return none_is_left(); })) << "a process outlived the run: " << job.output();
    return status.value_or(-1);
  }

  void note_processes() {
    for (const pid_t pid : Command::processes_with(folder_.root.string())) seen_.insert({pid, beginning_of(pid)});
  }

  // A process that ends has no command line any more, but its files until it is over. One that began at another time is
  // of somebody else, who was given the number.
  bool none_is_left() const {
    const auto is_over = [](const auto& one) { return one.second.empty() || beginning_of(one.first) != one.second; };
    return std::all_of(seen_.begin(), seen_.end(), is_over) && Command::processes_with(folder_.root.string()).empty();
  }

  int64_t newest_step() const {
    const auto found = list_checkpoints(run_ / "checkpoints");
    return found.empty() ? 0 : found.front().step;
  }

  // The checkpoints that there were are there, and all of them are whole.
  void expect_no_loss() {
    EXPECT_GE(newest_step(), newest_);
    for (const FoundCheckpoint& one : list_checkpoints(run_ / "checkpoints"))
      EXPECT_NO_THROW(CheckpointReader(one.folder).verify());
  }

  // A plain start goes on to the end.
  std::string expect_it_goes_on(int steps = kFaultySteps) {
    Command again(command(steps), folder_.root / "again");
    EXPECT_EQ(end_of(again), 0) << again.output();
    expect_losses(steps);
    Command inspect({kHerd, "checkpoint", "inspect", "--verify", run_}, folder_.root / "inspected");
    EXPECT_EQ(end_of(inspect), 0) << inspect.output();
    expect_nothing_left();
    return again.output();
  }

  void expect_losses(int steps) {
    const auto found = read_metrics(run_ / "metrics.jsonl");
    ASSERT_EQ(found.size(), static_cast<size_t>(steps));
    const std::vector<StepMetrics>& expected = undisturbed(clips());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].step, static_cast<int64_t>(i) + 1);
      if (i < expected.size()) {
        ASSERT_NEAR(found[i].loss, expected[i].loss, 1e-6 * expected[i].loss) << "step " << i + 1;
      }
    }
  }

  void expect_nothing_left() {
    EXPECT_THAT(names_in(temporary_), testing::IsEmpty());
    for (const std::string& name : names_in("/dev/shm"))
      EXPECT_TRUE(shared_.contains(name) || name.find("herd") == std::string::npos) << "/dev/shm/" << name;
    ASSERT_TRUE(fs::exists(run_)) << "there is no run";
    for (const auto& entry : fs::recursive_directory_iterator(run_))
      EXPECT_EQ(entry.path().filename().string().find(".tmp."), std::string::npos) << entry.path();
  }

  void kill_or_restart(bool restart) {
    std::vector<std::string> more;
    if (restart) more = {"--max-restarts", "2"};
    Command job = begin(kFaultySteps, more);
    auto processes = processes_of(folder_.root, job.pid());
    if (restart) std::erase_if(processes, [](const auto& one) { return !one.first.starts_with("rank"); });
    std::string victim;
    if (!processes.empty()) {
      const auto chosen = std::next(processes.begin(), drawn_.below(static_cast<int>(processes.size())));
      victim = chosen->first;
      kill(chosen->second, SIGKILL);
    }
    SCOPED_TRACE("victim: " + victim);
    const int status = end_of(job);
    if (restart || victim == "guardian" || victim.empty()) {
      EXPECT_EQ(status, 0) << job.output();
    } else if (victim.starts_with("rank") && status != 0) {
      EXPECT_THAT(job.output(), HasSubstr(victim)) << job.output();
      EXPECT_THAT(job.output(), HasSubstr("was killed by signal 9"));
    }
    if (status != 0) expect_no_loss();
    expect_it_goes_on();
  }

  void stop() {
    const std::vector<std::string> all = {"guardian", "launcher", "rank 0", "rank 1", "rank 2"};
    const std::string victim = all[static_cast<size_t>(drawn_.below(2 + drawn_.ranks()))];
    SCOPED_TRACE("victim: " + victim);
    const bool is_rank = victim.starts_with("rank");
    std::vector<std::string> more;
    if (is_rank) more = {"comm.deadline_s=8"};
    Command job = begin(kFaultySteps, more);
    auto processes = processes_of(folder_.root, job.pid());
    if (processes.contains(victim)) kill(processes[victim], SIGSTOP);
    if (victim == "launcher") {
      usleep(static_cast<useconds_t>(drawn_.below(2'000'000)));
      if (!over(job.pid())) kill(job.pid(), SIGCONT);
    }
    const int status = end_of(job);
    if (!is_rank) {
      EXPECT_EQ(status, 0) << job.output();
    } else if (status != 0) {
      EXPECT_THAT(job.output(), HasSubstr(victim));
    }
    expect_no_loss();
    expect_it_goes_on();
  }

  void signal() {
    Command job = begin(kFaultySteps);
    const int chosen = std::vector<int>{SIGHUP, SIGTERM, SIGINT, SIGUSR1}[static_cast<size_t>(drawn_.below(4))];
    SCOPED_TRACE(strsignal(chosen));
    if (!over(job.pid())) kill(job.pid(), chosen);
    const int status = end_of(job);
    const std::string output = job.output();
    if (drawn_.step > 0) {
      EXPECT_EQ(status, 0) << output;
      const int steps = lines_of(run_ / "metrics.jsonl") - 1;
      EXPECT_EQ(newest_step(), steps) << "it saves where it stops: " << output;
      if (steps < kFaultySteps) {
        EXPECT_THAT(output, HasSubstr("stopped by a signal after step"));
      }
    }
    expect_no_loss();
    expect_it_goes_on();
  }

  // In a mount namespace of its own, where alone the disk is to be seen; then there is room, and the run goes on.
  void full_disk() {
    const fs::path disk = folder_.root / "disk", out = folder_.root / "out";
    fs::create_directory(disk);
    fs::create_directory(out);
    const int kib = 40 + drawn_.below(1800);
    SCOPED_TRACE("a disk of " + std::to_string(kib) + " KiB");
    std::string line = "timeout -s KILL " + std::to_string(kPatience);
    for (const std::string& word : command(kFaultySteps)) line += " " + word;
    line += " log.dir=" + disk.string();
    const std::string show = "; echo status $? >> " + out.string() + "/status; ";
    const std::string script =
        "mount -t tmpfs -o size=" + std::to_string(kib) + "k tmpfs " + disk.string() + " && { " + line + " > " +
        out.string() + "/first 2>&1" + show + "ls " + disk.string() + "/run/checkpoints/*/manifest.json > " +
        out.string() + "/kept 2>&1; " + "mount -o remount,size=64m " + disk.string() + "; " + line + " > " +
        out.string() + "/again 2>&1" + show + kHerd + " checkpoint inspect --verify " + disk.string() + "/run > " +
        out.string() + "/inspected 2>&1" + show + "cp -r " + disk.string() + "/run " + run_.string() + "; }";
    Command job({"/usr/bin/unshare", "-rm", "/bin/sh", "-c", script}, folder_.root / "output");
    EXPECT_EQ(end_of(job, 3 * kPatience), 0) << job.output();  // of two runs, which timeout ends, and what is between
    const std::string statuses = slurp(out / "status"), first = slurp(out / "first"), again = slurp(out / "again");
    EXPECT_THAT(statuses, AnyOf(HasSubstr("status 0\nstatus 0\nstatus 0\n"),
                                ContainsRegex("status [1-9][0-9]?\nstatus 0\nstatus 0\n")))
        << first << again;
    if (!statuses.starts_with("status 0")) {
      EXPECT_THAT(first, AnyOf(HasSubstr("No space left on device"), HasSubstr("are free"))) << first;
      EXPECT_THAT(first, HasSubstr(disk.string())) << "which file or folder";
    }
    if (slurp(out / "kept").find("step-") != std::string::npos && !statuses.starts_with("status 0")) {
      EXPECT_THAT(again, HasSubstr("resumed from")) << again;
    }
    expect_losses(kFaultySteps);
    expect_nothing_left();
  }

  void stalled_reader() {
    const fs::path pipe = folder_.root / "pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const int reader = open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    fcntl(reader, F_SETPIPE_SZ, 4096);
    Command job = begin(kFaultySteps, {}, pipe);
    const bool leaves = drawn_.below(2) == 0;
    SCOPED_TRACE(leaves ? "it leaves" : "it stays");
    if (leaves) close(reader);
    const auto status = ended_within(kPatience, job.pid());
    EXPECT_EQ(status, std::optional<int>(0)) << "it hangs, or failed";
    if (!status) kill(job.pid(), SIGKILL), waitpid(job.pid(), nullptr, 0);
    if (!leaves) close(reader);
    EXPECT_TRUE(within(60, [&] { return none_is_left(); }));
    expect_losses(kFaultySteps);
    expect_no_loss();
    expect_it_goes_on();
  }

  // Ends a job that would train for long, once what was to happen in it has.
  int stopped_after(Command& job) {
    EXPECT_TRUE(within(kPatience, [&] { return lines_of(run_ / "metrics.jsonl") > 2 || over(job.pid()); }))
        << job.output();
    newest_ = std::max(newest_, newest_step() - 1);
    kill(job.pid(), SIGTERM);
    EXPECT_EQ(end_of(job), 0) << job.output();
    return lines_of(run_ / "metrics.jsonl") - 1;
  }

  void second_job() {
    Command job = begin(1'000'000);
    if (drawn_.step == 0) {
      EXPECT_TRUE(within(kPatience, [&] { return fs::exists(run_ / "metrics.jsonl") || over(job.pid()); }));
    }
    std::vector<std::string> more;
    if (drawn_.below(2) == 0) more = {"checkpoint.resume=none", "checkpoint.used_folder=set_aside"};
    Command second(command(kFaultySteps, more), folder_.root / "second");
    const auto status = ended_within(kPatience, second.pid());
    EXPECT_EQ(status, std::optional<int>(2)) << second.output();
    EXPECT_THAT(second.output(), HasSubstr("is owned by process"));
    const int steps = stopped_after(job);
    expect_no_loss();
    expect_it_goes_on(steps + 5);
  }

  void stranger() {
    Command job = begin(1'000'000);
    std::set<int> ports;
    EXPECT_TRUE(within(kPatience, [&] { return !(ports = ports_of(job.pid())).empty(); })) << job.output();
    std::vector<int> open;
    for (int i = 0; i < 50 && !ports.empty(); ++i) {
      open.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(static_cast<uint16_t>(*ports.begin()));
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (connect(open.back(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) continue;
      std::string said = std::vector<std::string>{"", "GET / HTTP/1.1\r\n\r\n", std::string("\x16\x03\x01\x02\x00", 5),
                                                  "\x16"}[static_cast<size_t>(drawn_.below(4))];
      for (int more = drawn_.below(300); more > 0; --more) said += static_cast<char>(drawn_.random());
      if (drawn_.below(5) > 0) send(open.back(), said.data(), said.size(), MSG_NOSIGNAL);
      if (drawn_.below(2) == 0) close(open.back()), open.pop_back();
    }
    const int steps = stopped_after(job);
    for (const int one : open) close(one);
    EXPECT_THAT(job.output(), HasSubstr("refused a connection")) << "who tried";
    expect_no_loss();
    expect_it_goes_on(steps + 5);
  }

  // After a kill a file of the run is cut: the next start says what it passed over, or needs nothing of it.
  void truncated_file() {
    drawn_.step = std::max(drawn_.step, 16);
    Command job = begin(1'000'000);
    EXPECT_TRUE(
        within(kPatience, [&] { return list_checkpoints(run_ / "checkpoints").size() >= 2 || over(job.pid()); }));
    kill(job.pid(), SIGKILL);
    end_of(job);
    expect_no_loss();
    const auto kept = list_checkpoints(run_ / "checkpoints");
    ASSERT_GE(kept.size(), 2u);
    const std::vector<fs::path> files = {kept[0].folder / "manifest.json",
                                         kept[0].folder / "shard-00000.safetensors",
                                         kept[0].folder / "shard-00001.safetensors",
                                         run_ / "metrics.jsonl",
                                         run_ / "config.toml",
                                         run_ / "run.json"};
    const fs::path& file = files[static_cast<size_t>(drawn_.below(static_cast<int>(files.size())))];
    ASSERT_TRUE(fs::exists(file)) << file;
    const auto bytes = static_cast<int>(fs::file_size(file));
    const auto cut = drawn_.below(4) == 0 ? 0 : drawn_.below(bytes);
    SCOPED_TRACE(file.string() + " cut from " + std::to_string(bytes) + " to " + std::to_string(cut) + " bytes");
    fs::resize_file(file, static_cast<uintmax_t>(cut));
    const bool of_checkpoint = file.parent_path() == kept[0].folder;
    const int steps = static_cast<int>(kept[0].step) + 5;
    Command again(command(steps), folder_.root / "again");
    EXPECT_EQ(end_of(again), 0) << again.output();
    const std::string output = again.output();
    EXPECT_THAT(output, HasSubstr(kept[of_checkpoint ? 1 : 0].folder.filename().string() + ", step"))
        << "resumed from another";
    if (of_checkpoint) {
      EXPECT_THAT(output, HasSubstr("passed over a broken checkpoint: " + file.string())) << output;
    }
    const auto found = read_metrics(run_ / "metrics.jsonl");
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.back().step, steps);
    if (file.filename() != "metrics.jsonl") expect_losses(steps);
    expect_nothing_left();
  }

  FaultyRun& drawn_;
  RunFolder folder_;
  fs::path run_, temporary_;
  std::set<std::string> shared_;
  std::set<std::pair<pid_t, std::string>> seen_;  // with when they began
  int64_t newest_ = 0;                            // step of the newest checkpoint that was there when the fault came
};

TEST(FaultyRuns, NoneHangsLeavesAnythingOrLosesACheckpoint_AndEachNamesItsCause) {
  uint32_t seed = 21;
  int first = 0, count = std::getenv("HERD_FULL_TESTS") ? 300 : 12;
  if (const char* one = std::getenv("HERD_FAULTY_RUN")) {
    count = 1;
    ASSERT_GE(std::sscanf(one, "%u:%d:%d", &seed, &first, &count), 2) << "HERD_FAULTY_RUN=SEED:NUMBER[:COUNT]";
  }
  const bool mounts = std::system("unshare -rm true 2>/dev/null") == 0;
  for (int number = first; number < first + count; ++number) {
    FaultyRun drawn(seed, number);
    if (drawn.fault == Fault::kFullDisk && !mounts) continue;
    SCOPED_TRACE(drawn.name());
    Scene(drawn).play();
    if (std::getenv("HERD_FULL_TESTS"))
      std::fprintf(stderr, "%d: %s%s\n", number, drawn.name().c_str(), HasFailure() ? " (failures so far)" : "");
  }
}

}  // namespace
}  // namespace herd::train
