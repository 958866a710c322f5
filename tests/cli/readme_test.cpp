// What the README shows of herd's commands is what they print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "../launch/child_process.h"

namespace herd::launch {
namespace {

std::string folder(const char* name) { return std::getenv(name) != nullptr ? std::getenv(name) : "."; }

struct Shown {
  std::vector<std::string> command;  // without the word herd
  std::string output;
};

// What the README's fenced blocks show: each command and the text up to the next. `herd plan` has a test of its own.
std::vector<Shown> shown_in_readme() {
  std::ifstream readme(folder("HERD_SOURCE_DIR") + "/README.md");
  std::vector<Shown> all;
  bool fenced = false, shows = false;
  for (std::string line; std::getline(readme, line);) {
    if (line.starts_with("```")) {
      fenced = !fenced;
      shows = false;
    } else if (fenced && line.starts_with("$ herd ")) {
      shows = line.starts_with("$ herd explain") || line.starts_with("$ herd show schedule");
      if (!shows) continue;
      std::istringstream words(line.substr(7));
      all.emplace_back();
      for (std::string word; words >> word;) all.back().command.push_back(word);
    } else if (shows) {
      all.back().output += line + "\n";
    }
  }
  return all;
}

TEST(Readme, ShowsWhatItsCommandsPrint) {
  int compared = 0;
  for (const Shown& shown : shown_in_readme()) {
    std::vector<std::string> words = {folder("HERD_BINARY_DIR") + "/herd"};
    words.insert(words.end(), shown.command.begin(), shown.command.end());
    ChildProcess herd(words);
    EXPECT_EQ(herd.wait(), 0) << herd.output();
    const std::string first_line = shown.output.substr(0, shown.output.find('\n'));
    if (!herd.output().starts_with(first_line)) {  // "..., one host, 2 cores": another machine explains otherwise
      const size_t machine = first_line.find(", one host");
      ASSERT_NE(machine, std::string::npos) << herd.output();
      EXPECT_TRUE(herd.output().starts_with(first_line.substr(0, machine))) << herd.output();
      continue;
    }
    EXPECT_EQ(herd.output(), shown.output);
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

}  // namespace
}  // namespace herd::launch
