#include "herd/cli/run_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "herd/launch/environment.h"

namespace herd::cli {
namespace {

constexpr int kNotStarted = 127;  // the status that shells give if a program does not start

std::string read_to_end(int fd) {
  std::string text;
  char piece[4096];
  for (ssize_t count = 0; (count = read(fd, piece, sizeof piece)) != 0;) {
    if (count > 0) text.append(piece, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) break;
  }
  return text;
}

int wait_for_end(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ProgramEnd run_program(const std::vector<std::string>& command) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return {kNotStarted, std::string("pipe2: ") + std::strerror(errno)};
  std::vector<std::string> words = command;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
  pid_t child = -1;
  const int failed = posix_spawn(&child, pointers[0], &files, nullptr, pointers.data(), launch::inherited_variables());
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  ProgramEnd end{kNotStarted, std::strerror(failed)};
  if (failed == 0) {
    end.output = read_to_end(ends[0]);
    end.status = wait_for_end(child);
  }
  close(ends[0]);
  return end;
}

}  // namespace herd::cli
