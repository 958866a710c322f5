// A command as a child of the test, its output collected; killed when it goes out of scope.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace herd::launch {

class ChildProcess {
 public:
  explicit ChildProcess(std::vector<std::string> command, const std::map<std::string, std::string>& extra = {}) {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC) != 0) abort();
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
    std::vector<std::string> settings;
    for (char** entry = environ; *entry; ++entry) {
      if (!extra.contains(std::string(*entry).substr(0, std::string(*entry).find('=')))) settings.emplace_back(*entry);
    }
    for (const auto& [name, value] : extra) settings.push_back(name + "=" + value);
    std::vector<char*> arguments, environment;
    for (std::string& text : command) arguments.push_back(text.data());
    for (std::string& text : settings) environment.push_back(text.data());
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
    if (posix_spawnp(&pid_, arguments[0], &files, nullptr, arguments.data(), environment.data()) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    output_fd_ = ends[0];
  }
  ~ChildProcess() {
    if (pid_ > 0 && status_ < 0) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(output_fd_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  const std::string& output() const { return output_; }

  // Reads until the text has appeared `times` times. False after a minute, or at the end of the output.
  bool wait_for(const std::string& text, int times = 1) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (count(text) < times) {
      if (std::chrono::steady_clock::now() > until || !read_some(100)) return false;
    }
    return true;
  }
  // The exit status, or 128 + signal; -1 after the time.
  int wait(int seconds = 60) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (std::chrono::steady_clock::now() < until) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        while (read_some(0)) {
        }
        return status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      }
      if (!read_some(10)) usleep(10'000);
    }
    return -1;
  }
  int count(const std::string& text) const {
    int times = 0;
    for (size_t at = 0; (at = output_.find(text, at)) != std::string::npos; ++at) ++times;
    return times;
  }

 private:
  // False at the end of the output; with wait_ms 0 also where nothing is there.
  bool read_some(int wait_ms) {
    pollfd readable = {output_fd_, POLLIN, 0};
    if (poll(&readable, 1, wait_ms) <= 0) return wait_ms > 0;
    char bytes[4096];
    const ssize_t got = read(output_fd_, bytes, sizeof bytes);
    if (got <= 0) return false;
    output_.append(bytes, static_cast<size_t>(got));
    return true;
  }

  pid_t pid_ = -1;
  int output_fd_ = -1, status_ = -1;
  std::string output_;
};

}  // namespace herd::launch
