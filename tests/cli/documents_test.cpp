// What the guide shows of herd's commands is what they print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "../launch/child_process.h"
#include "tests/support/temporary_folder.h"

namespace herd::launch {
namespace {

namespace fs = std::filesystem;

std::string folder(const char* name) { return std::getenv(name) != nullptr ? std::getenv(name) : "."; }

struct Shown {
  std::vector<std::string> command;  // without the word herd
  std::string output;
};

// What the guide's fenced blocks show: each command and the text up to the next. A file that a block shows with `cat`
// is written into `files`, where the commands after it find it. `herd plan` has a test of its own.
std::vector<Shown> shown_in_guide(const fs::path& files) {
  std::ifstream guide(folder("HERD_SOURCE_DIR") + "/docs/guide/collectives.md");
  std::vector<Shown> all;
  bool fenced = false, shows = false;
  std::ofstream file;
  for (std::string line; std::getline(guide, line);) {
    if (line.starts_with("```") || line.starts_with("$ ")) {
      shows = false;
      file.close();
    }
    if (line.starts_with("```")) fenced = !fenced;
    if (fenced && line.starts_with("$ cat ")) {
      file.open(files / line.substr(6));
    } else if (fenced && line.starts_with("$ herd ")) {
      shows = true;
      std::istringstream words(line.substr(7));
      all.emplace_back();
      for (std::string word; words >> word;) {
        all.back().command.push_back(fs::exists(files / word) ? (files / word).string() : word);
      }
    } else if (file.is_open()) {
      file << line << "\n";
    } else if (shows) {
      all.back().output += line + "\n";
    }
  }
  return all;
}

// Of an explanation what is true on any machine: the first word of each line, and what is left out and why.
std::multiset<std::string> outline(const std::string& explanation) {
  std::multiset<std::string> all;
  std::istringstream lines(explanation);
  for (std::string line; std::getline(lines, line);) {
    all.insert(line.starts_with("left out") ? line : line.substr(0, line.find_first_of(" :")));
  }
  return all;
}

TEST(Documents, ShowWhatTheCommandsPrint) {
  const TemporaryFolder files;
  int compared = 0;
  for (const Shown& shown : shown_in_guide(files.path())) {
    std::vector<std::string> words = {folder("HERD_BINARY_DIR") + "/herd"};
    std::copy_if(shown.command.begin(), shown.command.end(), std::back_inserter(words),
                 [](const std::string& word) { return word != "--measure"; });  // takes seconds
    ChildProcess herd(words);
    EXPECT_EQ(herd.wait(), 0) << herd.output();
    const bool of_this_host = std::ranges::count(shown.command, "--topology") == 0;
    if (shown.command.front() == "explain" && of_this_host) {  // its times are those of this host
      EXPECT_EQ(outline(herd.output()), outline(shown.output));
    } else {
      EXPECT_EQ(herd.output(), shown.output) << "fix: copy what it prints into docs/guide/collectives.md";
    }
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

}  // namespace
}  // namespace herd::launch
