#include "herd/base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>

namespace herd {
namespace {

// Runs `body` in a child, which ends with what it returns.
int status_of_child(const std::function<int()>& body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StandardStreams, OpensThoseThatAreMissing_AndNoOther) {
  for (int missing = 0; missing < 8; ++missing) {  // a bit for each of the three streams
    EXPECT_EQ(status_of_child([&] {
                for (int stream = 0; stream < 3; ++stream) {
                  if (missing >> stream & 1) close(stream);
                }
                open_missing_streams();
                return open("/dev/null", O_RDONLY) > 2 && write(1, "", 0) == 0 && write(2, "", 0) == 0 &&
                               (missing % 2 == 0 || read(0, &missing, 1) == 0)
                           ? 0
                           : 1;
              }),
              0)
        << "missing " << missing;
  }
  EXPECT_EQ(status_of_child([] {
              int ends[2];
              if (pipe(ends) != 0) return 2;
              dup2(ends[1], 1);
              open_missing_streams();
              char byte = 0;
              return write(1, "x", 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'x' ? 0 : 1;
            }),
            0);
}

// Prints to a file opened in place of the standard output, and returns flush_output()'s status for a status of 0.
int status_of_printing(const char* file, size_t bytes) {
  return status_of_child([&] {
    dup2(open(file, O_WRONLY), STDOUT_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    for (size_t k = 0; k < bytes; ++k) k % 2 ? (void)std::putchar('x') : (void)(std::cout << 'y');
    return flush_output(0);
  });
}

TEST(StandardStreams, AFullOutputIsAnErrorHoweverMuchIsPrinted) {
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{100'000}}) {
    EXPECT_EQ(status_of_printing("/dev/full", bytes), 1) << bytes;
    EXPECT_EQ(status_of_printing("/dev/null", bytes), 0) << bytes;
  }
  EXPECT_EQ(status_of_printing("/dev/full", 0), 0) << "nothing is lost";
}

TEST(StandardStreams, AStatusStaysWhereTheOutputIsFullToo) {
  EXPECT_EQ(status_of_child([] {
              dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
              dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
              std::printf("x");
              return flush_output(7);
            }),
            7);
}

TEST(StandardStreams, AReaderThatHasLeftIsNoError) {
  for (const size_t bytes : {size_t{1}, size_t{100'000}}) {
    EXPECT_EQ(status_of_child([&] {
                std::signal(SIGPIPE, SIG_IGN);
                int ends[2];
                if (pipe(ends) != 0) return 2;
                dup2(ends[1], STDOUT_FILENO);
                close(ends[0]);
                for (size_t k = 0; k < bytes; ++k) std::putchar('x');
                return flush_output(0);
              }),
              0)
        << bytes;
  }
}

}  // namespace
}  // namespace herd
