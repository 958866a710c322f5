#include "herd/launch/output.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace herd::launch {

OutputStream::OutputStream(int from_fd, Console& console, int console_stream, std::string prefix, RankLog& log)
    : from_fd_(from_fd), console_(&console), console_stream_(console_stream), prefix_(std::move(prefix)), log_(&log) {}

OutputStream::OutputStream(OutputStream&& other) noexcept
    : from_fd_(std::exchange(other.from_fd_, -1)),
      console_(other.console_),
      console_stream_(other.console_stream_),
      prefix_(std::move(other.prefix_)),
      log_(other.log_),
      pending_(std::move(other.pending_)) {}

OutputStream::~OutputStream() {
  if (from_fd_ >= 0) close(from_fd_);
}

void OutputStream::copy_available() {
  char bytes[16384];
  for (int round = 0; from_fd_ >= 0 && round < 64; ++round) {  // bounded, so that other ranks get their turn
    const ssize_t count = read(from_fd_, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;  // nothing more for now (EAGAIN), or an unreadable pipe, which finish() closes
    if (count == 0) {
      close(from_fd_);
      from_fd_ = -1;
      break;
    }
    const std::string text(bytes, static_cast<size_t>(count));
    log_->append(text);
    pending_ += text;
    write_lines(false);
  }
}

void OutputStream::finish() {
  copy_available();
  write_lines(true);
  if (from_fd_ >= 0) close(from_fd_);
  from_fd_ = -1;
}

void OutputStream::write_lines(bool with_unfinished_line) {
  constexpr size_t kMaxLineBytes = 1 << 16;
  std::string out;
  size_t begin = 0;
  for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    out += prefix_ + pending_.substr(begin, end + 1 - begin);
  }
  if (begin < pending_.size() && (with_unfinished_line || pending_.size() - begin > kMaxLineBytes)) {
    out += prefix_ + pending_.substr(begin) + "\n";
    begin = pending_.size();
  }
  pending_.erase(0, begin);
  console_->write(console_stream_, std::move(out));
}

}  // namespace herd::launch
