#include "herd/cli/progress_line.h"

#include <unistd.h>

#include <cstdio>

#include "herd/base/units.h"

namespace herd::cli {

ProgressLine::ProgressLine(std::string what, bool shown)
    : what_(std::move(what)), shown_(shown && ::isatty(STDERR_FILENO)) {}

ProgressLine::~ProgressLine() {
  if (printed_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::update(int64_t done, int64_t all) {
  const auto now = Clock::now();
  if (!shown_ || all <= 0 || (printed_ && now - last_ < std::chrono::milliseconds(100))) return;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  std::fprintf(stderr, "\r\033[K%s %3d %%  %s of %s  %s/s", what_.c_str(), static_cast<int>(100 * done / all),
               format_bytes(static_cast<double>(done)).c_str(), format_bytes(static_cast<double>(all)).c_str(),
               format_bytes(seconds > 0 ? static_cast<double>(done) / seconds : 0).c_str());
  last_ = now;
  printed_ = true;
}

}  // namespace herd::cli
