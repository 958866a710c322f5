// Writes a line for each event to stderr, with time, level and rank; a level below the chosen one costs a comparison.
// Texts are plain: callers format them. Control characters are escaped.   Threads: any.
#pragma once

#include <functional>
#include <string>

namespace herd {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void set_log_level(LogLevel level);  // drops lines of lower levels; kInfo at first
void set_log_rank(int rank);         // begins every line with "[rank R]"; -1 begins it with nothing
// Passes lines, with their line feeds, to `output` in place of stderr; nullptr goes back to stderr. `output` must not
// log.
void set_log_output(std::function<void(const std::string&)> output);
void set_log_file(const std::string& path);  // appends lines to this file, too; throws where it can't be opened
bool log_enabled(LogLevel level);            // tells whether lines of this level are written

void log_debug(const std::string& text);
void log_info(const std::string& text);
void log_warning(const std::string& text);
void log_error(const std::string& text);

}  // namespace herd
