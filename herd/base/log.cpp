// spdlog stays inside this file: torch ships another fmt, and the two do not compile together.
#include "herd/base/log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>

#include "herd/base/printable.h"

namespace herd::log {
namespace {

std::mutex mutex;
int rank = -1;

constexpr char kPattern[] = "%H:%M:%S.%e %^%l%$ %v";

// Threads: `mutex` is held.
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

spdlog::logger& logger() {
  static auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("herd", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern(kPattern);
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

void write(Level level, const std::string& text) {
  std::lock_guard lock(mutex);
  const std::string line = (rank < 0 ? "" : "[rank " + std::to_string(rank) + "] ") + printable_lines(text);
  logger().log(to_spdlog(level), spdlog::string_view_t(line));
}

}  // namespace

void set_level(Level level) { logger().set_level(to_spdlog(level)); }
void set_rank(int new_rank) {
  std::lock_guard lock(mutex);
  rank = new_rank;
}
void set_output(std::function<void(const std::string&)> output) {
  std::lock_guard lock(mutex);
  spdlog::sink_ptr& first = logger().sinks().front();
  if (output)
    first = std::make_shared<OutputSink>(std::move(output));
  else
    first = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  first->set_pattern(kPattern);
}
void set_file(const std::string& path) {
  std::lock_guard lock(mutex);
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
  sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  logger().sinks().push_back(sink);
}
bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }

void debug(const std::string& text) { write(Level::kDebug, text); }
void info(const std::string& text) { write(Level::kInfo, text); }
void warning(const std::string& text) { write(Level::kWarning, text); }
void error(const std::string& text) { write(Level::kError, text); }

}  // namespace herd::log
