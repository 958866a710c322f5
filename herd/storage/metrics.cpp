#include "herd/storage/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/readable_file.h"

namespace herd {
namespace {

constexpr uint64_t kMaxWhole = std::numeric_limits<int64_t>::max();
constexpr char kHeader[] = R"({"format":"herd-metrics","version":1})";

// Parses one line of a metrics file. Its errors name the file and the line.
class LineParser {
 public:
  LineParser(const std::string& file, int64_t line) : where_(file + " line " + std::to_string(line) + ": ") {}

  [[noreturn]] void corrupt(const std::string& rule) const { throw Error(Code::kCorruptFile, where_ + rule); }

  nlohmann::json object(std::string_view text) const {
    auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object()) corrupt("not a JSON object");
    return json;
  }

  double number(const nlohmann::json& json, const char* name) const {
    const auto found = json.find(name);
    if (found != json.end() && found->is_null()) return std::numeric_limits<double>::quiet_NaN();
    if (found == json.end() || !found->is_number()) corrupt("it must have the number \"" + std::string(name) + "\"");
    return found->get<double>();
  }

  int64_t whole(const nlohmann::json& json, const char* name) const {
    const auto found = json.find(name);
    const bool is_whole = found != json.end() && found->is_number_integer() &&
                          !(found->is_number_unsigned() && found->get<uint64_t>() > kMaxWhole);
    if (!is_whole) corrupt("it must have the whole number \"" + std::string(name) + "\", up to 2^63 - 1");
    return found->get<int64_t>();
  }

  StepMetrics metrics(std::string_view text) const {
    const auto json = object(text);
    StepMetrics metrics;
    metrics.step = whole(json, "step");
    metrics.loss = number(json, "loss");
    metrics.grad_norm = number(json, "grad_norm");
    metrics.lr = number(json, "lr");
    metrics.tokens = whole(json, "tokens");
    metrics.tokens_per_s = number(json, "tokens_per_s");
    metrics.step_ms = number(json, "step_ms");
    metrics.comm_wait_ms = number(json, "comm_wait_ms");
    metrics.bytes_sent = whole(json, "bytes_sent");
    metrics.device_bytes_peak = whole(json, "device_bytes_peak");
    metrics.predicted_step_ms = number(json, "predicted_step_ms");
    metrics.predicted_device_bytes_peak = whole(json, "predicted_device_bytes_peak");
    if (json.contains("compression_ratio")) metrics.compression_ratio = number(json, "compression_ratio");
    if (json.contains("compression_error")) metrics.compression_error = number(json, "compression_error");
    if (json.contains("staleness")) metrics.staleness = whole(json, "staleness");
    if (json.contains("ranks")) metrics.ranks = whole(json, "ranks");
    if (json.contains("expert_imbalance")) metrics.expert_imbalance = number(json, "expert_imbalance");
    if (json.contains("expert_dropped")) metrics.expert_dropped = number(json, "expert_dropped");
    if (json.contains("expert_load")) metrics.expert_load = loads(json.at("expert_load"));
    if (json.contains("close_choices")) metrics.close_choices = counts(json.at("close_choices"), "close_choices");
    if (json.contains("val_loss")) metrics.val_loss = number(json, "val_loss");
    if (json.contains("val_figures")) metrics.val_figures = figures(json.at("val_figures"));
    return metrics;
  }

 private:
  std::map<std::string, double> figures(const nlohmann::json& json) const {
    std::map<std::string, double> by_name;
    if (!json.is_object()) corrupt("\"val_figures\" must be an object of numbers");
    for (const auto& [name, value] : json.items()) by_name[name] = number(json, name.c_str());
    return by_name;
  }

  std::vector<std::vector<int64_t>> loads(const nlohmann::json& json) const {
    std::vector<std::vector<int64_t>> by_layer;
    if (!json.is_array()) corrupt("\"expert_load\" must be a list of whole numbers for each layer");
    for (const nlohmann::json& layer : json) by_layer.push_back(counts(layer, "expert_load"));
    return by_layer;
  }

  std::vector<int64_t> counts(const nlohmann::json& json, const std::string& name) const {
    const std::string rule = "\"" + name + "\" must have a list of whole numbers";
    if (!json.is_array()) corrupt(rule);
    std::vector<int64_t> out;
    for (const nlohmann::json& count : json) {
      if (!count.is_number_unsigned() || count.get<uint64_t>() > kMaxWhole) corrupt(rule);
      out.push_back(count.get<int64_t>());
    }
    return out;
  }

  std::string where_;
};

void check_header(const LineParser& parser, std::string_view line) {
  const auto header = parser.object(line);
  if (header.value("format", nlohmann::json()) != "herd-metrics" || header.value("version", nlohmann::json()) != 1)
    parser.corrupt("a metrics file starts with " + std::string(kHeader));
}

void add_step(const LineParser& parser, std::string_view line, std::vector<StepMetrics>& steps) {
  const StepMetrics metrics = parser.metrics(line);
  if (!steps.empty() && metrics.step <= steps.back().step) {
    parser.corrupt("step " + std::to_string(metrics.step) + " does not follow step " +
                   std::to_string(steps.back().step));
  }
  steps.push_back(metrics);
}

std::string header_of(const std::string& run) {
  nlohmann::ordered_json header = nlohmann::ordered_json::parse(kHeader);
  if (!run.empty()) header["run"] = run;
  return header.dump();
}

// Returns the steps that can be read. Keeps a copy of a damaged file beside the file that takes its place.
std::vector<StepMetrics> salvaged_steps(const std::filesystem::path& path, FileSystem& files) {
  const std::string text = ReadableFile(path, files).text();
  SalvagedMetrics salvaged = salvage_metrics(text, path.string());
  if (salvaged.passed_over.empty()) return std::move(salvaged.steps);
  const std::string kept = path.string() + ".damaged";
  write_file_atomically(kept, text, files);
  log_warning("damaged lines of metrics that are left out: " + std::to_string(salvaged.passed_over.size()) +
              ", the first: " + salvaged.passed_over[0] + "; the file as it was is " + kept);
  return std::move(salvaged.steps);
}

// A run that begins again has no checkpoint to go on from.
void say_what_is_lost(const std::filesystem::path& path, const FileSystem& files) {
  if (!is_file(path, files)) return;
  const size_t steps = salvage_metrics(ReadableFile(path, files).text(), path.string()).steps.size();
  if (steps == 0) return;
  log_warning("the run begins again, since it has no checkpoint; the metrics of its " + std::to_string(steps) +
              (steps == 1 ? " step" : " steps") + " so far are replaced: " + path.string());
}

}  // namespace

std::string format_metrics(const StepMetrics& m) {
  nlohmann::ordered_json json = {{"step", m.step},
                                 {"loss", m.loss},
                                 {"grad_norm", m.grad_norm},
                                 {"lr", m.lr},
                                 {"tokens", m.tokens},
                                 {"tokens_per_s", m.tokens_per_s},
                                 {"step_ms", m.step_ms},
                                 {"comm_wait_ms", m.comm_wait_ms},
                                 {"bytes_sent", m.bytes_sent},
                                 {"device_bytes_peak", m.device_bytes_peak},
                                 {"predicted_step_ms", m.predicted_step_ms},
                                 {"predicted_device_bytes_peak", m.predicted_device_bytes_peak}};
  if (m.compression_ratio) json["compression_ratio"] = *m.compression_ratio;
  if (m.compression_error) json["compression_error"] = *m.compression_error;
  if (m.staleness) json["staleness"] = *m.staleness;
  if (m.ranks) json["ranks"] = *m.ranks;
  if (m.expert_imbalance) json["expert_imbalance"] = *m.expert_imbalance;
  if (m.expert_dropped) json["expert_dropped"] = *m.expert_dropped;
  if (!m.expert_load.empty()) json["expert_load"] = m.expert_load;
  if (!m.close_choices.empty()) json["close_choices"] = m.close_choices;
  if (m.val_loss) json["val_loss"] = *m.val_loss;
  if (!m.val_figures.empty()) json["val_figures"] = m.val_figures;
  return json.dump();
}

std::vector<StepMetrics> parse_metrics(std::string_view text, const std::string& file) {
  std::vector<StepMetrics> steps;
  for (int64_t line = 1;; ++line) {
    const size_t end = text.find('\n');
    const LineParser parser(file, line);
    if (end == text.npos) {
      if (line == 1) parser.corrupt("a metrics file starts with " + std::string(kHeader));
      return steps;
    }
    const std::string_view line_text = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == 1)
      check_header(parser, line_text);
    else
      add_step(parser, line_text, steps);
  }
}

SalvagedMetrics salvage_metrics(std::string_view text, const std::string& file) {
  SalvagedMetrics salvaged;
  int64_t line = 1;
  for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1), ++line) {
    const LineParser parser(file, line);
    try {
      if (line == 1)
        check_header(parser, text.substr(0, end));
      else
        add_step(parser, text.substr(0, end), salvaged.steps);
    } catch (const Error& error) {
      salvaged.passed_over.push_back(error.message());
    }
  }
  if (line == 1) salvaged.passed_over.push_back(file + ": a metrics file starts with " + std::string(kHeader));
  return salvaged;
}

std::vector<StepMetrics> read_metrics(const std::filesystem::path& path) {
  return parse_metrics(ReadableFile(path).text(), path.string());
}

MetricsWriter::MetricsWriter(std::filesystem::path path, int64_t resumed_step, const std::string& run,
                             FileSystem& files)
    : path_(std::move(path)) {
  std::string text = header_of(run) + "\n";
  if (resumed_step == 0) say_what_is_lost(path_, files);
  if (resumed_step > 0 && is_taken(path_, files)) {
    for (const auto& metrics : salvaged_steps(path_, files)) {
      if (metrics.step <= resumed_step) text += format_metrics(metrics) + "\n";
    }
  }
  write_file_atomically(path_, text, files);
  fd_ = files.open(path_, O_WRONLY | O_APPEND);
  if (fd_ < 0) throw_errno(Code::kStorage, "open " + path_.string(), -fd_);
}

MetricsWriter::~MetricsWriter() { ::close(fd_); }

void MetricsWriter::write(const StepMetrics& metrics) {
  const bool was_behind = !pending_.empty();
  pending_ += format_metrics(metrics) + "\n";
  const int refusal = put_pending();
  if (refusal != 0 && !was_behind) {
    log_warning("the metrics of step " + std::to_string(metrics.step) + " can't be written to " + path_.string() +
                ": " + std::generic_category().message(refusal) + "\n  they are tried again after each step");
  }
  if (refusal == 0 && was_behind)
    log_info("the metrics up to step " + std::to_string(metrics.step) + " are written again");
}

// Returns 0 or an errno value. May leave a part of a line in the file; the rest of that line stays pending.
int MetricsWriter::put_pending() {
  while (!pending_.empty()) {
    const ssize_t written = ::write(fd_, pending_.data(), pending_.size());
    if (written == 0) return ENOSPC;
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) pending_.erase(0, static_cast<size_t>(written));
  }
  return 0;
}

void MetricsWriter::finish() {
  if (const int refusal = put_pending(); refusal != 0)
    throw_errno(Code::kStorage, "write the last metrics to " + path_.string(), refusal);
}

}  // namespace herd
