// One line per event on stderr, with time, level and rank; levels below the chosen one cost a comparison.
// Threads: any. The text is plain: format before calling.
#pragma once

#include <functional>
#include <string>

namespace herd {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void set_log_level(LogLevel level);
void set_log_rank(int rank);  // prefixed to every line; -1 = none
// Lines go to `output`, with their line feeds, and not to stderr; nullptr = to stderr. It must not log.
void set_log_output(std::function<void(const std::string&)> output);
void set_log_file(const std::string& path);  // lines go to this file too
bool log_enabled(LogLevel level);

void log_debug(const std::string& text);
void log_info(const std::string& text);
void log_warning(const std::string& text);
void log_error(const std::string& text);

}  // namespace herd
