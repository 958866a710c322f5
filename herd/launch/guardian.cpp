#include "herd/launch/guardian.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "herd/base/error.h"

namespace herd::launch {
namespace {

// Runs the guardian: waits until the launcher's end of the pipe closes, then kills the group. Calls only functions that
// are safe after a fork in a process with threads.
[[noreturn]] void guard(int launcher_pipe, pid_t group) {
  setpgid(0, group);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU}) {
    ::signal(signal, SIG_IGN);
  }
  prctl(PR_SET_NAME, "herd-guardian");
  dup2(launcher_pipe, 0);
  close_range(1, ~0u, 0);
  char byte;
  while (read(0, &byte, 1) < 0) {
  }
  const timespec delay = {0, 100'000'000};  // a rank that was being started has joined the group by then
  nanosleep(&delay, nullptr);
  kill(0, SIGKILL);
  _exit(0);
}

// Returns the process group of a process, or -1 where it has ended. The name in /proc/PID/stat may hold brackets, so
// the fields are read after the last one.
pid_t group_of(const std::filesystem::path& process) {
  std::ifstream file(process / "stat");
  std::string text;
  std::getline(file, text);
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return -1;
  std::istringstream fields(text.substr(bracket + 1));
  std::string state;
  pid_t parent = 0, group = -1;
  fields >> state >> parent >> group;
  return state == "Z" ? -1 : group;
}

}  // namespace

Guardian::Guardian() {
  start();
  group_ = pid_;
}

void Guardian::start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno(Code::kStorage, "pipe to the guardian", errno);
  const pid_t started = fork();
  if (started == 0) guard(ends[0], group_);
  const int failure = errno;
  close(ends[0]);
  if (started < 0) {
    close(ends[1]);
    throw_errno(Code::kStorage, "fork the guardian", failure);
  }
  pid_ = started;
  pipe_ = ends[1];
  setpgid(pid_, group_);  // both processes set it: either may run first
}

std::optional<std::string> Guardian::replace_if_dead() {
  siginfo_t ended = {};
  if (pid_ < 0 || waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0)
    return std::nullopt;
  const std::string what = "the guardian (process " + std::to_string(pid_) +
                           ") is gone, which ends the ranks if this " + "launcher is killed; ";
  dead_.push_back(pid_);
  pid_ = -1;
  close(pipe_);
  pipe_ = -1;
  try {
    start();
  } catch (const Error& error) {
    return what + "none can take its place: " + error.message();
  }
  return what + "process " + std::to_string(pid_) + " takes its place";
}

Guardian::~Guardian() {
  kill(-group_, SIGKILL);
  if (pipe_ >= 0) close(pipe_);
  if (pid_ > 0) dead_.push_back(pid_);
  for (const pid_t guardian : dead_) {
    while (waitpid(guardian, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Guardian::signal_group(int signal) const { kill(-group_, signal); }

void Guardian::kill_members() const {
  constexpr int kRounds = 10;  // a member may be starting another while we look
  for (int round = 0; round < kRounds; ++round) {
    bool any = false;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const pid_t member = static_cast<pid_t>(std::strtol(name.c_str(), nullptr, 10));
      if (member == pid_ || group_of(entry.path()) != group_) continue;
      any = true;
      kill(member, SIGKILL);
    }
    if (!any) return;
  }
}

}  // namespace herd::launch
