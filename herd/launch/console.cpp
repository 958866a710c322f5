#include "herd/launch/console.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "herd/base/log.h"

namespace herd::launch {
namespace {

using Clock = std::chrono::steady_clock;

bool is_same_file(int a, int b) {
  struct stat first = {}, second = {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

// Writes one file on a thread of its own. The thread may stay in write() for good, so it keeps what it uses alive, and
// the process may end while it is there.
class Console::Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(int fd, std::string elsewhere) : fd_(fd), log_folder_(std::move(elsewhere)) {}

  void start() {
    std::thread([self = shared_from_this()] { self->serve(); }).detach();
  }

  void add(std::string lines) {
    std::lock_guard lock(mutex_);
    if (gone_) return;
    if (queue_.size() + lines.size() > kMaxQueuedBytes && is_stalled()) {
      left_out_ += std::count(lines.begin(), lines.end(), '\n');
      return;
    }
    report_left_out();
    queue_ += lines;
    changed_.notify_all();
  }

  bool wants_more() const {
    std::lock_guard lock(mutex_);
    return gone_ || queue_.size() < kMaxQueuedBytes || is_stalled();
  }

  bool is_gone() const {
    std::lock_guard lock(mutex_);
    return gone_;
  }

  // Returns why writing failed, an errno; 0 where it did not.
  int failure() const {
    std::lock_guard lock(mutex_);
    return failure_;
  }

  void wait_until_written() {
    std::unique_lock lock(mutex_);
    report_left_out();
    changed_.notify_all();
    while (!gone_ && (writing_ || !queue_.empty()) && !is_stalled()) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
    }
  }

  void finish() {
    wait_until_written();
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }

 private:
  // Says whether the reader has taken nothing for longer than kStalled. Requires the mutex.
  bool is_stalled() const { return writing_ && Clock::now() - last_taken_ > kStalled; }

  // Queues one line that says how many lines were dropped. Requires the mutex.
  void report_left_out() {
    if (left_out_ == 0) return;
    queue_ += "herd run: " + std::to_string(left_out_) + " lines are left out here, for nobody read them in time" +
              (log_folder_.empty() ? "" : "; they are in " + log_folder_) + "\n";
    left_out_ = 0;
  }

  void serve() {
    constexpr size_t kWriteBytes = 4096;  // bytes; a writable pipe takes so many without blocking
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::string lines = std::exchange(queue_, {});
      writing_ = true;
      last_taken_ = Clock::now();
      for (size_t done = 0; done < lines.size() && !gone_;) {
        lock.unlock();
        const ssize_t wrote = ::write(fd_, lines.data() + done, std::min(kWriteBytes, lines.size() - done));
        const int failure = wrote < 0 ? errno : 0;
        // Another process may have made the file non-blocking.
        if (failure == EAGAIN) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        lock.lock();
        if (wrote > 0) {
          done += static_cast<size_t>(wrote);
          last_taken_ = Clock::now();
        } else if (failure != EINTR && failure != EAGAIN) {
          gone_ = true;
          failure_ = failure;
          queue_.clear();
        }
      }
      writing_ = false;
      if (queue_.empty() && !gone_) report_left_out();
      changed_.notify_all();
    }
  }

  const int fd_;
  const std::string log_folder_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string queue_;
  int64_t left_out_ = 0;  // lines dropped while the reader is stalled
  bool writing_ = false;
  bool gone_ = false;  // the reader has closed its end, or the file can't be written
  int failure_ = 0;    // errno of the write that failed
  bool ending_ = false;
  Clock::time_point last_taken_ = {};  // when the reader last took something
};

Console::Console(const std::string& elsewhere) {
  ::signal(SIGPIPE, SIG_IGN);
  streams_[0] = std::make_shared<Stream>(STDOUT_FILENO, elsewhere);
  streams_[1] =
      is_same_file(STDOUT_FILENO, STDERR_FILENO) ? streams_[0] : std::make_shared<Stream>(STDERR_FILENO, elsewhere);
  streams_[0]->start();
  if (streams_[1] != streams_[0]) streams_[1]->start();
  set_log_output([errors = streams_[1]](const std::string& line) { errors->add(line); });
}

Console::~Console() {
  set_log_output(nullptr);
  for (const auto& stream : streams_) stream->finish();
}

Console::Stream& Console::stream(int fd) const { return *streams_[fd == STDERR_FILENO ? 1 : 0]; }

void Console::write(int fd, std::string lines) {
  if (lines.empty()) return;
  stream(fd).add(std::move(lines));
  if (fd == STDERR_FILENO || !streams_[0]->is_gone() || reported_gone_.exchange(true)) return;
  const int failure = streams_[0]->failure();
  const std::string why = failure == EPIPE
                              ? "nobody reads the standard output any more"
                              : std::string("the standard output can't be written: ") + std::strerror(failure);
  streams_[1]->add("herd run: " + why + "; the job goes on\n");
}

int Console::finish_output() {
  streams_[0]->wait_until_written();
  const int failure = streams_[0]->failure();
  return failure == EPIPE ? 0 : failure;
}

bool Console::wants_more(int fd) const { return stream(fd).wants_more(); }

}  // namespace herd::launch
