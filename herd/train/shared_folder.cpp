#include "herd/train/shared_folder.h"

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/host_name.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/file_system.h"
#include "herd/storage/run_id.h"
#include "herd/train/shared_error.h"

namespace herd::train {
namespace {

namespace fs = std::filesystem;

constexpr char kProbe[] = "probe-";

// The file of this rank, which goes with the object.
class Probe {
 public:
  explicit Probe(fs::path path) : path_(std::move(path)) {
    FileSystem& files = FileSystem::system();
    const int made = files.create(path_);
    if (made >= 0) files.close(made);
    if (made < 0) failure_ = std::generic_category().message(-made);
  }
  ~Probe() { FileSystem::system().remove(path_); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  const std::string& failure() const { return failure_; }  // empty: the file is there

 private:
  fs::path path_;
  std::string failure_;
};

fs::path probe_of(const fs::path& folder, const std::string& proof, Rank rank) {
  return folder / (kProbe + proof + "-" + std::to_string(rank));
}

void remove_leftovers(const fs::path& folder) {
  for (const fs::path& path : entries_of(folder)) {
    if (path.filename().string().starts_with(kProbe)) FileSystem::system().remove(path);
  }
}

bool appears(const fs::path& path, SteadyTime until) {
  while (!is_taken(path)) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// "ranks 2, 3 on host b"; long lists are cut.
std::string text_of(const std::string& host, const std::vector<Rank>& ranks) {
  constexpr size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text + " on host " + host;
}

// Of rank 0. `told`: of each rank, its host, a line feed, and why it could not write.
void look_for_all(const fs::path& folder, const std::string& proof, const std::vector<std::string>& told,
                  std::chrono::milliseconds timeout) {
  std::map<std::string, std::vector<Rank>> unseen;  // by host
  std::string reason;
  const SteadyTime until = std::chrono::steady_clock::now() + timeout;
  for (size_t i = 0; i < told.size(); ++i) {
    const Rank rank = static_cast<Rank>(i);
    const size_t line = told[i].find('\n');
    const std::string failure = told[i].substr(line + 1);
    if (failure.empty() && appears(probe_of(folder, proof, rank), until)) continue;
    if (reason.empty() && !failure.empty()) reason = " (rank " + std::to_string(rank) + ": " + failure + ")";
    unseen[told[i].substr(0, line)].push_back(rank);
  }
  if (unseen.empty()) return;
  std::string whose;
  for (const auto& [host, ranks] : unseen) whose += (whose.empty() ? "" : ", ") + text_of(host, ranks);
  throw Error(Code::kBadConfig, "all ranks write into one folder, " + folder.string() + ", but rank 0 on host " +
                                    host_name() + " sees no file there of " + whose + reason +
                                    "\n  fix: log.dir on a file system that all hosts have at the same path, which "
                                    "every rank may write");
}

}  // namespace

void prove_shared_folder(const fs::path& folder, CheckpointPeers& peers, std::chrono::milliseconds timeout) {
  if (peers.size() == 1) return;
  const std::string proof = on_root(peers, [&] {
    remove_leftovers(folder);
    return new_run_id();
  });
  const Probe probe(probe_of(folder, proof, peers.rank()));
  const std::vector<std::string> told = peers.gather_to_root(host_name() + "\n" + probe.failure());
  on_root(peers, [&] {
    look_for_all(folder, proof, told, timeout);
    return std::string();
  });
}

}  // namespace herd::train
