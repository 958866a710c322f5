// A run's folder that somebody else filled: a start in it works or is refused, changes nothing outside, and never
// waits.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <map>
#include <random>

#include "checkpoint_fixture.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/metrics.h"
#include "herd/storage/run_folder.h"
#include "herd/storage/run_lock.h"
#include "herd/storage/temporary_name.h"
#include "tests/support/expect_error.h"
#include "tests/support/sample.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

// The files of a folder that need not reach the disk.
class UnsyncedFiles final : public FileSystem {
 public:
  explicit UnsyncedFiles(const fs::path& folder) : FileSystem(folder) {}
  int sync(int) override { return 0; }
  int sync_folder(const fs::path&) override { return 0; }
};

// What rank 0 of herd train does with a run's folder: it owns it, starts, saves twice and cleans up.
void train(const fs::path& folder, const StartRequest& request) {
  const RunLock lock(folder, {.beat = std::chrono::milliseconds(20),
                              .lease = std::chrono::milliseconds(40),
                              .timeout = std::chrono::milliseconds(80)});
  UnsyncedFiles files(folder);
  const RunStart start = plan_start(folder, request);
  if (start.checkpoint) load_numbers(*start.checkpoint);
  remove_stale_temporaries(folder, files);
  if (start.sets_aside) set_aside(folder);
  for (const char* name : {"run.json", "config.toml", "report.html"})
    write_file_atomically(folder / name, R"({"run":")" + start.run + "\"}", files);
  MetricsWriter metrics(folder / "metrics.jsonl", start.checkpoint ? 4 : 0, start.run, files);
  for (const int64_t step : {5, 6}) {
    metrics.write({.step = step});
    const fs::path saved = save_numbers(folder / "checkpoints", step, files, start.run);
    keep_newest(folder / "checkpoints", {.newest = 1, .run = start.run, .written = saved}, files);
  }
  make_folders(folder / "logs", files);
  metrics.finish();
}

// Returns every path of a folder, with what is there.
std::map<std::string, std::string> content_of(const fs::path& folder) {
  std::map<std::string, std::string> content;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    struct stat info {};
    ::lstat(entry.path().c_str(), &info);
    content[entry.path()] = std::to_string(info.st_mode) + " " + (S_ISREG(info.st_mode) ? read_text(entry.path()) : "");
  }
  return content;
}

// Fills run folders at random. Beside them stands a folder `victim`, which must not change.
class Attacker {
 public:
  Attacker(const fs::path& root, unsigned seed) : random_(seed), run_(root / "run"), victim_(root / "victim") {
    fs::create_directories(victim_ / "inner");
    for (const char* name : {"file", "lock", "inner/rank0.log"}) write_text(victim_ / name, "mine");
    save_numbers(victim_ / "checkpoints", 4);
    fs::create_directories(run_);
    if (draw(2) == 0) fill_as_a_run();
    for (int i = 1 + draw(3); i > 0; --i) replace(run_ / kNames[static_cast<size_t>(draw(std::size(kNames)))]);
  }
  const fs::path& run() const { return run_; }
  const fs::path& victim() const { return victim_; }

 private:
  static constexpr const char* kNames[] = {"lock",
                                           "run.json",
                                           "run.json",
                                           "metrics.jsonl",
                                           "metrics.jsonl.damaged",
                                           "config.toml",
                                           "report.html",
                                           "logs",
                                           "set_aside",
                                           "set_aside/unnamed",
                                           "set_aside/one",
                                           "checkpoints",
                                           "checkpoints/step-00000001",
                                           "checkpoints/step-00000004",
                                           "checkpoints/step-00000005",
                                           "checkpoints/step-00000006",
                                           "checkpoints/step-00000009",
                                           "checkpoints/step-00000004/manifest.json",
                                           "checkpoints/step-00000004/shard-00000.safetensors",
                                           "checkpoints/step-00000005/shard-00009.safetensors",
                                           "lock.tmp.2147483647.0"};
  static constexpr const char* kIds[] = {"one", "../../victim", "../../../victim", "..", ".", "/tmp", "a/b", "a\\nb"};

  int draw(size_t below) { return static_cast<int>(random_() % below); }

  void fill_as_a_run() {
    const char* id = kIds[draw(2) == 0 ? 0 : draw(std::size(kIds))];
    write_text(run_ / "run.json", std::string(R"({"run":")") + id + "\"}");
    write_text(run_ / "metrics.jsonl", "{}\n{\"step\":1}\n");
    for (const int64_t step : {1, 4})
      save_numbers(run_ / "checkpoints", step, unsynced_files(), kIds[draw(2) == 0 ? 0 : draw(std::size(kIds))]);
  }

  void replace(const fs::path& path) {
    std::error_code failed;
    fs::create_directories(path.parent_path(), failed);
    fs::remove_all(path, failed);
    const fs::path target = victim_ / std::vector<fs::path>{"",
                                                            "file",
                                                            "lock",
                                                            "inner",
                                                            "checkpoints",
                                                            "new",
                                                            "checkpoints/step-00000004"}[static_cast<size_t>(draw(7))];
    switch (draw(7)) {
      case 0:
        return fs::create_symlink(target, path, failed);
      case 1:
        return fs::create_symlink(fs::relative(target, path.parent_path(), failed), path, failed);
      case 2:
        return fs::create_hard_link(target, path, failed);
      case 3:
        ::mkfifo(path.c_str(), 0666);
        return;
      case 4:
        return bind_socket(path);
      case 5:
        ::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 3));  // the null device, for root alone
        return;
      default:
        fs::create_directories(path / "in the way", failed);
        return fs::create_symlink(target, path / "manifest.json", failed);
    }
  }

  static void bind_socket(const fs::path& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (path.native().size() >= sizeof address.sun_path) return;
    path.native().copy(address.sun_path, path.native().size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ::close(fd);
  }

  std::mt19937 random_;
  fs::path run_, victim_;
};

TEST(HostileRunFolder, AStartWorksOrIsRefused_AndNothingOutsideChanges) {
  int worked = 0, refused = 0;
  const unsigned stride = static_cast<unsigned>(one_in(10, 40));
  for (unsigned seed = 0; seed < 2000 && !HasFailure(); seed += stride) {
    TemporaryFolder root;
    const Attacker attacker(root.path(), seed);
    const auto before = content_of(attacker.victim());
    const StartRequest requests[] = {{}, {.resume = "none", .used = UsedFolder::kSetAside}, {.resume = "none"}};
    ::alarm(20);  // ends a test that waits for ever
    try {
      refuse_owned_run(attacker.run());
      train(attacker.run(), requests[seed / stride % 3]);
      ++worked;
    } catch (const Error& error) {
      EXPECT_NE(error.code(), Code::kBug) << error.what();
      EXPECT_NE(error.message().find("fix:"), std::string::npos) << error.what();
      ++refused;
    }
    ::alarm(0);
    EXPECT_EQ(content_of(attacker.victim()), before) << "seed " << seed;
    EXPECT_EQ(entries_of(root.path()).size(), 2u) << "seed " << seed;
  }
  EXPECT_GT(worked, 3);
  EXPECT_GT(refused, 3);
}

TEST(HostileRunFolder, AnIdIsNoPath) {
  TemporaryFolder root;
  const fs::path folder = root / "runs/run";
  fs::create_directories(folder);
  for (const std::string id : {"../../victim", "..", "a/b", "a b", "\\u0000"}) {
    write_text(folder / "run.json", R"({"run":")" + id + "\"}");
    EXPECT_ERROR(read_run_record(folder), Code::kCorruptFile, "run.json names its run", "a run's id is 1 to 64 of",
                 "fix:");
  }
  write_text(folder / "run.json", R"({"run":")" + std::string(65, 'x') + "\"}");
  EXPECT_ERROR(plan_start(folder, {}), Code::kCorruptFile, "a run's id is 1 to 64 of");
  fs::remove(folder / "run.json");
  const fs::path saved = save_numbers(folder / "checkpoints", 4, unsynced_files(), "../../victim");
  EXPECT_ERROR(read_manifest(saved), Code::kCorruptFile, "the note \"run\" is \"../../victim\"", "a run's id");
  EXPECT_EQ(set_aside(folder), folder / "set_aside/unnamed");
}

TEST(HostileRunFolder, ALinkInPlaceOfACheckpointIsPassedOver_AndLeftAlone) {
  TemporaryFolder root;
  const fs::path folder = root / "run", checkpoints = folder / "checkpoints";
  const fs::path elsewhere = save_numbers(root / "elsewhere", 9);
  const fs::path own = save_numbers(checkpoints, 4);
  fs::create_directory_symlink(elsewhere, checkpoints / "step-00000009");
  const RunStart start = plan_start(folder, {});
  EXPECT_EQ(*start.checkpoint, own);
  ASSERT_EQ(start.passed_over.size(), 1u);
  EXPECT_NE(start.passed_over[0].find("step-00000009 is a link"), std::string::npos) << start.passed_over[0];
  EXPECT_EQ(list_checkpoints(checkpoints).size(), 1u);
  const fs::path written = save_numbers(checkpoints, 9);
  EXPECT_EQ(written.filename(), "step-00000009-2");
  EXPECT_TRUE(keep_newest(checkpoints, {.newest = 1, .written = written}).empty());
  EXPECT_FALSE(fs::exists(own));
  EXPECT_EQ(load_numbers(elsewhere), numbers(9));
}

TEST(HostileRunFolder, ALinkInPlaceOfTheCheckpointsIsRefused_WithAFix) {
  TemporaryFolder root;
  save_numbers(root / "elsewhere", 9);
  fs::create_directory(root / "run");
  fs::create_directory_symlink(root / "elsewhere", root / "run/checkpoints");
  EXPECT_ERROR(plan_start(root / "run", {}), Code::kStorage, "run/checkpoints is a link", "fix: a folder in its place");
}

TEST(HostileRunFolder, AShardThatIsALinkIsNotRead) {
  TemporaryFolder root;
  const fs::path saved = save_numbers(root / "checkpoints", 4);
  fs::rename(saved / "shard-00000.safetensors", root / "shard");
  fs::create_symlink(root / "shard", saved / "shard-00000.safetensors");
  EXPECT_ERROR(CheckpointReader{saved}, Code::kCorruptFile, "shard-00000.safetensors", "it is a link");
  fs::create_directory_symlink(root / "checkpoints", root / "named");
  fs::remove(saved / "shard-00000.safetensors");
  fs::rename(root / "shard", saved / "shard-00000.safetensors");
  EXPECT_EQ(load_numbers(root / "named/step-00000004"), numbers(4)) << "the folder's own path may lead over links";
}

TEST(HostileRunFolder, ALockThatIsSomethingElseIsRefused) {
  TemporaryFolder root;
  fs::create_directory(root / "run");
  write_text(root / "victim", "mine");
  fs::create_symlink(root / "victim", root / "run/lock");
  EXPECT_ERROR(RunLock{root / "run"}, Code::kStorage, "run/lock", "symbolic link", "fix:");
  fs::remove(root / "run/lock");
  fs::create_hard_link(root / "victim", root / "run/lock");
  EXPECT_ERROR(RunLock{root / "run"}, Code::kStorage, "run/lock", "2 names (hard links)", "fix: delete");
  fs::remove(root / "run/lock");
  ASSERT_EQ(::mkfifo((root / "run/lock").c_str(), 0600), 0);
  EXPECT_ERROR(RunLock{root / "run"}, Code::kStorage, "run/lock", "fix:");
  EXPECT_EQ(read_text(root / "victim"), "mine");
}

}  // namespace
}  // namespace herd
