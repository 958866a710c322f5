// spdlog stays inside this file: torch ships another fmt, and the two do not compile together.
#include "herd/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>

namespace herd::log {
namespace {

std::mutex mutex;
int rank = -1;

spdlog::logger& logger() {
  static auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("herd", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%H:%M:%S.%e %^%l%$ %v");
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
  const std::string line = rank < 0 ? text : "[rank " + std::to_string(rank) + "] " + text;
  logger().log(to_spdlog(level), spdlog::string_view_t(line));
}

}  // namespace

void set_level(Level level) { logger().set_level(to_spdlog(level)); }
void set_rank(int new_rank) {
  std::lock_guard lock(mutex);
  rank = new_rank;
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
