// spdlog stays inside this file: torch ships another fmt, and the two do not compile together.
#include "herd/base/log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>

#include "herd/base/printable.h"

namespace herd {
namespace {

std::mutex log_mutex;
int log_rank = -1;

constexpr char kLinePattern[] = "%H:%M:%S.%e %^%l%$ %v";

// Hands each formatted line to a function. Threads: callers hold `log_mutex`.
class OutputSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit OutputSink(std::function<void(const std::string&)> output) : output_(std::move(output)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    output_(std::string(line.data(), line.size()));
  }
  void flush_() override {}

 private:
  std::function<void(const std::string&)> output_;
};

spdlog::logger& herd_logger() {
  static auto instance = [] {
    auto logger = std::make_shared<spdlog::logger>("herd", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern(kLinePattern);
    logger->flush_on(spdlog::level::info);
    return logger;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

void write_line(LogLevel level, const std::string& text) {
  std::lock_guard lock(log_mutex);
  const std::string line = (log_rank < 0 ? "" : "[rank " + std::to_string(log_rank) + "] ") + printable_lines(text);
  herd_logger().log(to_spdlog(level), spdlog::string_view_t(line));
}

}  // namespace

void set_log_level(LogLevel level) { herd_logger().set_level(to_spdlog(level)); }
void set_log_rank(int rank) {
  std::lock_guard lock(log_mutex);
  log_rank = rank;
}
void set_log_output(std::function<void(const std::string&)> output) {
  std::lock_guard lock(log_mutex);
  spdlog::sink_ptr& console_sink = herd_logger().sinks().front();
  if (output)
    console_sink = std::make_shared<OutputSink>(std::move(output));
  else
    console_sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  console_sink->set_pattern(kLinePattern);
}
void set_log_file(const std::string& path) {
  std::lock_guard lock(log_mutex);
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
  sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  herd_logger().sinks().push_back(sink);
}
bool log_enabled(LogLevel level) { return herd_logger().should_log(to_spdlog(level)); }

void log_debug(const std::string& text) { write_line(LogLevel::kDebug, text); }
void log_info(const std::string& text) { write_line(LogLevel::kInfo, text); }
void log_warning(const std::string& text) { write_line(LogLevel::kWarning, text); }
void log_error(const std::string& text) { write_line(LogLevel::kError, text); }

}  // namespace herd
