// One line per event on stderr, with time, level and rank; levels below the chosen one cost a comparison.
// Threads: any. The text is plain: format before calling.
#pragma once

#include <functional>
#include <string>

namespace herd::log {

enum class Level { kDebug, kInfo, kWarning, kError };

void set_level(Level level);
void set_rank(int rank);  // prefixed to every line; -1 = none
// Lines go to `output`, with their line feeds, and not to stderr; nullptr = to stderr. It must not log.
void set_output(std::function<void(const std::string&)> output);
void set_file(const std::string& path);  // lines go to this file too
bool enabled(Level level);

void debug(const std::string& text);
void info(const std::string& text);
void warning(const std::string& text);
void error(const std::string& text);

}  // namespace herd::log
