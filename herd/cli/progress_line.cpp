#include "herd/cli/progress_line.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

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

StatusLine::StatusLine(std::string what)
    : what_(std::move(what)), at_terminal_(::isatty(STDERR_FILENO) == 1), printer_([this] {
        const auto period = at_terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(3000);
        for (std::unique_lock lock(mutex_); !stopped_.wait_for(lock, period, [this] { return stops_; });) print();
        if (at_terminal_) std::fputs("\r\033[K", stderr);
      }) {}

StatusLine::~StatusLine() {
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
  }
  stopped_.notify_one();
  printer_.join();
}

void StatusLine::update(std::string doing) {
  const std::scoped_lock lock(mutex_);
  doing_ = std::move(doing);
}

void StatusLine::print() const {
  if (doing_.empty()) return;
  std::fprintf(stderr, "%s%s: %s (%.0f s)%s", at_terminal_ ? "\r\033[K" : "", what_.c_str(), doing_.c_str(),
               std::chrono::duration<double>(Clock::now() - begin_).count(), at_terminal_ ? "" : "\n");
}

}  // namespace herd::cli
