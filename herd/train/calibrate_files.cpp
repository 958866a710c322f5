#include "herd/train/calibrate_files.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <vector>

#include "herd/base/check.h"
#include "herd/base/elapsed.h"
#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/train/mean_over_ranks.h"

namespace herd::train {
namespace {

using Clock = std::chrono::steady_clock;
using Extents = std::vector<NvmeFile::Extent>;

constexpr double kSlowestDrive = 1e-3;     // bytes a us, so that no time is infinite where no rank has a file
constexpr int64_t kBatchBytes = 64 << 20;  // that are read and written back at a time, of one value
constexpr double kMaxBytes = 256 << 20;    // that are moved where ways are not compared
constexpr int kRounds = 2;                 // in which ways take turns, so that a pause of the drive hits several
constexpr double kMinGain = 1.05;
constexpr NvmeRequests kWays[] = {{16, 1 << 20}, {4, 1 << 20},    {64, 1 << 20},
                                  {16, 4 << 20}, {16, 256 << 10}, {64, 256 << 10}};  // the usual one first

// Moves parts of a rank's values from its file to memory and back.
class FileTimer {
 public:
  explicit FileTimer(runtime::FlatParameters& parameters) : file_(parameters.file()) {
    if (file_ == nullptr) return;
    for (const program::Value& value : parameters.staged_values()) {
      Extents batch;
      int64_t room = kBatchBytes;
      for (NvmeFile::Extent extent : parameters.extents_in_file({&value, 1})) {
        extent.memory = extent.memory.first(static_cast<size_t>(std::min(room, extent.size())));
        room -= extent.size();
        if (extent.size() > 0) batch.push_back(extent);
      }
      if (!batch.empty()) batches_.push_back(std::move(batch));
    }
  }

  // Returns the bytes a us of what takes so long, at least one batch; 0 without a file.
  double rate(double seconds, double max_bytes) {
    if (batches_.empty()) return 0;
    double bytes = 0;
    const auto begin = Clock::now();
    do {
      const Extents& batch = batches_[next_++ % batches_.size()];
      file_->read(batch);
      file_->write(batch);
      for (const NvmeFile::Extent& extent : batch) bytes += 2 * static_cast<double>(extent.size());
    } while (us_since(begin) < 1e6 * seconds && bytes < max_bytes);
    return bytes / us_since(begin);
  }
  // Returns the rate at which each value is moved once, or some of them.
  double rate_of_each() {
    double bytes = 0;
    for (const Extents& batch : batches_)
      for (const NvmeFile::Extent& extent : batch) bytes += 2 * static_cast<double>(extent.size());
    return rate(1e3, std::min(bytes, kMaxBytes));
  }

  void ask(NvmeRequests requests) {
    if (file_ != nullptr) file_->set_requests(requests);
  }
  int64_t bytes() const { return file_ == nullptr ? 0 : file_->bytes(); }

 private:
  NvmeFile* const file_;
  std::vector<Extents> batches_;
  size_t next_ = 0;
};

int64_t max_over_ranks(int64_t number, Communicator& comm) {
  std::vector<int64_t> most = {number};
  if (comm.size() > 1) comm.all_reduce(most, {.op = ReduceOp::kMax, .name = "calibration of files"});
  return most[0];
}

}  // namespace

NvmeRequests best_requests(std::span<const NvmeRequests> ways, std::span<const double> rates) {
  HERD_CHECK(!ways.empty() && ways.size() == rates.size(), "a rate for each way");
  const auto best = static_cast<size_t>(std::ranges::max_element(rates) - rates.begin());
  return rates[best] >= kMinGain * rates[0] ? ways[best] : ways[0];
}

FileCalibration calibrate_files(runtime::FlatParameters& parameters, const FileCalibrationOptions& options,
                                Communicator& comm) {
  FileTimer files(parameters);
  if (options.known) {
    files.ask(options.known->requests);
    return *options.known;
  }
  const auto meet_ranks = [&] { comm.barrier({.name = "calibration of files"}); };
  FileCalibration out{.requests = kWays[0]};
  if (max_over_ranks(files.bytes(), comm) < options.min_bytes) {
    meet_ranks();
    out.bytes_per_us = std::max(mean_of_measured(files.rate_of_each(), comm), kSlowestDrive);
    return out;
  }
  constexpr size_t kCount = std::size(kWays);
  std::vector<double> sums(kCount), rates(kCount);
  std::vector<int> times(kCount);
  double us = 0;
  for (size_t i = 0; i < kRounds * kCount && us < 1e6 * options.seconds; ++i) {
    const size_t way = i % kCount;
    files.ask(kWays[way]);
    meet_ranks();
    const auto begin = Clock::now();
    const double rate = files.rate(options.seconds / (kRounds * kCount), 1e18);
    sums[way] += mean_of_measured(rate, comm);
    ++times[way];
    us += mean_over_ranks(us_since(begin), comm);  // the same on all, who end together
  }
  for (size_t way = 0; way < kCount; ++way) rates[way] = times[way] > 0 ? sums[way] / times[way] : 0;
  out.requests = best_requests(kWays, rates);
  out.compared = true;
  for (size_t way = 0; way < kCount; ++way)
    if (kWays[way] == out.requests) out.bytes_per_us = std::max(rates[way], kSlowestDrive);
  files.ask(out.requests);
  return out;
}

std::string drives_of(const runtime::FilePlace& place) {
  std::string out;
  for (const std::filesystem::path& path : place.paths) {
    const std::string folder = path.parent_path().string();
    struct stat status = {};
    out += (out.empty() ? "" : ", ") + printable(folder);
    if (::stat(folder.c_str(), &status) == 0)
      out += " on device " + std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev));
  }
  return out;
}

std::optional<FileCalibration> known_files(const std::filesystem::path& cluster_file, const std::string& drives,
                                           Communicator& comm) {
  std::vector<double> known = {0, 0, 0};  // depth, chunk and rate
  if (comm.rank() == 0) {
    try {
      std::ifstream in(cluster_file);
      std::ostringstream text;
      text << in.rdbuf();
      const planner::Cluster cluster = planner::parse_cluster(text.str(), cluster_file.string());
      if (cluster.files && cluster.files->of == drives)
        known = {static_cast<double>(cluster.files->depth), static_cast<double>(cluster.files->chunk),
                 cluster.device.nvme_bytes_per_us};
    } catch (const Error&) {  // none, or another version's: it is measured
    }
  }
  comm.broadcast(known, Rank{0}, {.name = "calibration of files"});
  if (known[0] <= 0) return std::nullopt;
  return FileCalibration{.requests = {static_cast<int>(known[0]), static_cast<int64_t>(known[1])},
                         .bytes_per_us = known[2]};
}

}  // namespace herd::train
