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

// Creates the file of this rank. Removes it when the object is destroyed.
class Probe {
 public:
  explicit Probe(fs::path path) : path_(std::move(path)) {
    FileSystem& files = FileSystem::system();
    const int fd = files.create(path_, kFilePermissions);
    if (fd >= 0) files.close(fd);
    if (fd < 0) failure_ = std::generic_category().message(-fd);
  }
  ~Probe() { FileSystem::system().remove(path_); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  const std::string& failure() const { return failure_; }  // empty: the file is there

 private:
  fs::path path_;
  std::string failure_;
};

fs::path probe_of(const fs::path& folder, const std::string& probe_id, Rank rank) {
  return folder / (kProbe + probe_id + "-" + std::to_string(rank));
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

// Returns a text like "ranks 2, 3 on host b". Long lists are cut.
std::string text_of(const std::string& host, const std::vector<Rank>& ranks) {
  constexpr size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text + " on host " + host;
}

// Throws unless rank 0, which calls this, sees the file of every rank. A report of a rank is its host, a line feed, and
// why it could not write.
void check_probes(const fs::path& folder, const std::string& probe_id, const std::vector<std::string>& reports,
                  std::chrono::milliseconds timeout) {
  std::map<std::string, std::vector<Rank>> unseen;  // by host
  std::string reason;
  const SteadyTime until = std::chrono::steady_clock::now() + timeout;
  for (size_t i = 0; i < reports.size(); ++i) {
    const Rank rank = static_cast<Rank>(i);
    const size_t line = reports[i].find('\n');
    const std::string failure = reports[i].substr(line + 1);
    if (failure.empty() && appears(probe_of(folder, probe_id, rank), until)) continue;
    if (reason.empty() && !failure.empty()) reason = " (rank " + std::to_string(rank) + ": " + failure + ")";
    unseen[reports[i].substr(0, line)].push_back(rank);
  }
  if (unseen.empty()) return;
  std::string missing;
  for (const auto& [host, ranks] : unseen) missing += (missing.empty() ? "" : ", ") + text_of(host, ranks);
  throw Error(Code::kBadConfig, "all ranks write into one folder, " + folder.string() + ", but rank 0 on host " +
                                    host_name() + " sees no file there of " + missing + reason +
                                    "\n  fix: log.dir on a file system that all hosts have at the same path, which "
                                    "every rank may write");
}

}  // namespace

void prove_shared_folder(const fs::path& folder, CheckpointPeers& peers, std::chrono::milliseconds timeout) {
  if (peers.size() == 1) return;
  const std::string probe_id = on_root(peers, [&] {
    remove_leftovers(folder);
    return new_run_id();
  });
  const Probe probe(probe_of(folder, probe_id, peers.rank()));
  const std::vector<std::string> reports = peers.gather_to_root(host_name() + "\n" + probe.failure());
  on_root(peers, [&] {
    check_probes(folder, probe_id, reports, timeout);
    return std::string();
  });
}

}  // namespace herd::train
