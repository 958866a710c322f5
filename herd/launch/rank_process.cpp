#include "herd/launch/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "herd/base/error.h"

namespace herd::launch {
namespace {

// Returns the null-terminated array that exec takes.
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Owns both ends of a pipe, but for an end that was taken.
struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) throw_errno(Code::kStorage, "pipe for a rank's output", errno);
  }
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int take_read_end() {
    const int end = ends[0];
    ends[0] = -1;
    fcntl(end, F_SETFL, O_NONBLOCK);
    return end;
  }
};

}  // namespace

RankProcess start_rank(int rank, const std::vector<std::string>& command, const Variables& variables, pid_t group) {
  Pipe output, errors;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, errors.ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, group);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<std::string> arguments = command, settings;
  for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
  RankProcess process;
  process.rank = rank;
  const int failed = posix_spawnp(&process.pid, arguments[0].c_str(), &files, &attributes, pointers(arguments).data(),
                                  pointers(settings).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) {
    throw Error(Code::kBadConfig, "can't start \"" + command[0] + "\": " + std::strerror(failed) +
                                      "\n  fix: the path of a program, or a program in PATH, after the options and --");
  }
  process.output = output.take_read_end();
  process.errors = errors.take_read_end();
  return process;
}

bool reap(RankProcess& process) {
  int status = 0;
  if (!process.running() || waitpid(process.pid, &status, WNOHANG) != process.pid) return false;
  process.wait_status = status;
  return true;
}

int exit_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string describe_end(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  const char* name = sigdescr_np(signal);
  return "was killed by signal " + std::to_string(signal) + " (" + (name ? name : "unknown") + ")";
}

}  // namespace herd::launch
