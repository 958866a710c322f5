// Runs the herd command as a user would, in a folder of its own.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace herd::train {

namespace fs = std::filesystem;

inline std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A process with its output in a file.
class Command {
 public:
  Command(const std::vector<std::string>& arguments, const fs::path& output) : output_(output) {
    pid_ = fork();
    if (pid_ == 0) {
      const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      dup2(fd, 1);
      dup2(fd, 2);
      setenv("OMP_NUM_THREADS", "1", 1);
      std::vector<char*> words;
      for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
      words.push_back(nullptr);
      execv(words[0], words.data());
      _exit(127);
    }
  }
  pid_t pid() const { return pid_; }
  std::string output() const { return slurp(output_); }
  // Returns whether the text has come, after the first `from` bytes; false once the process has ended without it.
  bool wait_for(const std::string& text, int seconds = 120, size_t from = 0) const {
    for (int i = 0; i < seconds * 50; ++i, usleep(20000)) {
      const bool ended = has_ended();  // before the look at its output, which is whole then
      if (output().find(text, from) != std::string::npos) return true;
      if (ended) return false;
    }
    return false;
  }
  bool has_ended() const {
    siginfo_t how{};
    return waitid(P_PID, static_cast<id_t>(pid_), &how, WEXITED | WNOHANG | WNOWAIT) != 0 || how.si_pid == pid_;
  }
  int wait() {  // exit status, 128 + signal
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // Processes whose command line holds `text`, other than this one.
  static std::vector<pid_t> processes_with(const std::string& text) {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid > 0 && pid != getpid() && slurp(entry.path() / "cmdline").find(text) != std::string::npos)
        found.push_back(pid);
    }
    return found;
  }
  // Returns the process of a rank of the job whose command line holds `text` and `program`, -1 if there is none.
  static pid_t process_of_rank(int rank, const std::string& text, const std::string& program) {
    for (const pid_t pid : processes_with(text)) {
      const std::string process = "/proc/" + std::to_string(pid);
      if (slurp(process + "/environ").find("HERD_RANK=" + std::to_string(rank)) != std::string::npos &&
          slurp(process + "/cmdline").find(program) != std::string::npos)
        return pid;
    }
    return -1;
  }
  static pid_t trainer_of_rank(int rank, const std::string& text) {
    return process_of_rank(rank, text, "herd-trainer");
  }

 private:
  pid_t pid_ = -1;
  fs::path output_;
};

struct Ended {
  int status = 0;
  std::string output;
};

// A folder with a run file for a model of width 32, that goes with the object.
class RunFolder {
 public:
  RunFolder() {
    std::string pattern = fs::temp_directory_path() / "herd-train-XXXXXX";
    root = mkdtemp(pattern.data());
    std::ofstream(root / "run.toml") << R"([model]
layers = 2
width = 32
heads = 2
context = 16
vocab = 300
[data]
kind = "random"
[train]
steps = 12
batch = 6
micro_batch = 2
eval_every = 6
eval_batches = 1
[optimizer]
lr = 3e-3
[checkpoint]
every = 6
[log]
name = "run"
dir = ")" << root.string() << "\"\n";
  }
  ~RunFolder() { fs::remove_all(root); }

  std::vector<std::string> command(const std::string& name, int ranks, std::vector<std::string> overrides = {}) const {
    std::vector<std::string> words = {fs::path(std::getenv("HERD_BINARY_DIR")) / "herd",
                                      "train",
                                      root / "run.toml",
                                      "--ranks",
                                      std::to_string(ranks),
                                      "log.name=" + name};
    words.insert(words.end(), overrides.begin(), overrides.end());
    return words;
  }
  Ended train(const std::string& name, int ranks, std::vector<std::string> overrides = {}) const {
    Command command_line(command(name, ranks, std::move(overrides)), root / (name + ".output"));
    const int status = command_line.wait();
    return {status, command_line.output()};
  }
  Command start(const std::string& name, int ranks, std::vector<std::string> overrides = {}) const {
    return Command(command(name, ranks, std::move(overrides)), root / (name + ".output"));
  }

  fs::path root;
};

}  // namespace herd::train
