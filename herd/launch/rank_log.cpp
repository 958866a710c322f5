#include "herd/launch/rank_log.h"

#include <unistd.h>

#include <cerrno>

namespace herd::launch {

RankLog::~RankLog() {
  if (fd_ >= 0) close(fd_);
}

void RankLog::append(const std::string& text) {
  if (fd_ < 0) return;
  waiting_ += text;
  write_waiting();
  if (waiting_.size() <= kMaxWaitingBytes) return;
  waiting_.resize(kMaxWaitingBytes);
  missing_ = failure_;
}

int RankLog::finish() {
  write_waiting();
  return missing_ != 0 ? missing_ : failure_;
}

// May leave a part of a line in the file; the rest of that line waits.
void RankLog::write_waiting() {
  size_t done = 0;
  failure_ = 0;
  while (done < waiting_.size() && failure_ == 0) {
    const ssize_t wrote = write(fd_, waiting_.data() + done, waiting_.size() - done);
    if (wrote > 0)
      done += static_cast<size_t>(wrote);
    else if (wrote == 0 || errno != EINTR)
      failure_ = wrote == 0 ? ENOSPC : errno;
  }
  waiting_.erase(0, done);
}

}  // namespace herd::launch
