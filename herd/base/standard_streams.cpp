#include "herd/base/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace herd {
namespace {

// The error of a write before the last one is not known any more, but a pipe still says that its reader has left.
bool has_reader_left() {
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

}  // namespace

void open_missing_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    const int opened = open("/dev/null", O_RDWR);
    if (opened == stream || opened < 0) continue;
    dup2(opened, stream);
    close(opened);
  }
}

std::string output_failure() {
  std::cout.flush();
  const bool failed_before = std::ferror(stdout) != 0;
  const int failure = std::fflush(stdout) == 0 ? 0 : errno;
  if ((failure == 0 && !failed_before) || failure == EPIPE || has_reader_left()) return "";
  return "the standard output can't be written" + (failure != 0 ? std::string(": ") + std::strerror(failure) : "") +
         ": what was printed is not complete";
}

int flush_output(int status) {
  const std::string failure = output_failure();
  if (failure.empty()) return status;
  std::fprintf(stderr, "herd: %s\n", failure.c_str());
  return status == 0 ? 1 : status;
}

}  // namespace herd
