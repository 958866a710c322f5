// Writes and reads metrics.jsonl: what each optimizer step did, one JSON object a line (docs/formats/metrics.md). The
// first line names format, version and run. A number that is not finite is null. One call writes a line, so a killed
// run loses at most the step it was in. The reader leaves out a last line that is not whole. A resumed run drops the
// steps after the one it resumes from, so that no step appears twice.
// Threads: plain data, pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/storage/file_system.h"

namespace herd {

struct StepMetrics {
  int64_t step = 0;                                        // 1-based: steps done
  double loss = std::numeric_limits<double>::quiet_NaN();  // mean over all tokens of the step, nats
  double grad_norm = std::numeric_limits<double>::quiet_NaN();
  double lr = 0;
  int64_t tokens = 0;  // tokens of this step, over all ranks
  double tokens_per_s = 0;
  double step_ms = 0;
  double comm_wait_ms = 0;  // time in which compute waited for communication
  int64_t bytes_sent = 0;   // by this rank in this step
  int64_t device_bytes_peak = 0;
  double predicted_step_ms = 0;
  int64_t predicted_device_bytes_peak = 0;
  // Set in steps whose gradients were encoded with residuals (strategy.compression).
  std::optional<double> compression_ratio = {};  // bytes of fp32 for each byte of what a rank encodes
  std::optional<double> compression_error = {};  // length of what encoding lost, as a share of what was encoded
  // Set where ranks may run ahead of each other (strategy.sync = "server_async").
  std::optional<int64_t> staleness = {};  // most steps that a rank was ahead of the slowest in its pulls
  std::optional<int64_t> ranks = {};      // that are left: the samples of others are left out
  // Of a mixture of experts: the load of the busiest expert over the mean one, in the least balanced layer; how many
  // tokens chose each expert of each layer; with a capacity, which share of the choices was dropped.
  std::optional<double> expert_imbalance = {}, expert_dropped = {};
  std::vector<std::vector<int64_t>> expert_load = {};
  std::vector<int64_t> close_choices = {};  // by layer: tokens whose choice of experts another rounding may change
  std::optional<double> val_loss = {};      // set where a validation followed this step
  std::map<std::string, double> val_figures = {};  // means that an own chain reports with it, by name
};

std::string format_metrics(const StepMetrics& metrics);  // returns one line, without its line feed

// Throws kCorruptFile with `file` and line for another format or version, or a line that is no object. Throws it, too,
// for a member that is missing or no number, and steps that don't ascend. It ignores unknown members.
std::vector<StepMetrics> parse_metrics(std::string_view text, const std::string& file);
std::vector<StepMetrics> read_metrics(const std::filesystem::path& path);  // throws kStorage if there is no file

// Holds what can be read of a damaged text: whole steps that ascend, whatever the lines between them say.
struct SalvagedMetrics {
  std::vector<StepMetrics> steps;
  std::vector<std::string> passed_over;  // what is wrong with each line left out, as parse_metrics() throws it
};
SalvagedMetrics salvage_metrics(std::string_view text, const std::string& file);

// Appends steps to a file. A line that the system refuses to write stays in memory, with a warning, and is tried again
// with each later one. Only the constructor and finish() throw: kStorage. Threads: one at a time.
class MetricsWriter {
 public:
  // Starts the file anew (resumed_step = 0), with a warning where it holds steps, or keeps what it holds up to
  // `resumed_step` and goes on after it. A
  // damaged file stops no run: the writer keeps what can be read, leaves the damaged file as <name>.damaged, and warns.
  // `run` is the id that the first line names.
  MetricsWriter(std::filesystem::path path, int64_t resumed_step, const std::string& run = "",
                FileSystem& files = FileSystem::system());
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;
  void write(const StepMetrics& metrics);
  void finish();  // throws if a line is not in the file

 private:
  int put_pending();  // 0, or errno

  std::filesystem::path path_;
  std::string pending_;  // what is not yet in the file
  int fd_ = -1;
};

}  // namespace herd
