// What the README shows of herd's commands is what they print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
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

// Of an explanation what is true on any machine: the first word of each line, and what is left out and why.
std::multiset<std::string> outline(const std::string& explanation) {
  std::multiset<std::string> all;
  std::istringstream lines(explanation);
  for (std::string line; std::getline(lines, line);) {
    all.insert(line.starts_with("left out") ? line : line.substr(0, line.find_first_of(" :")));
  }
  return all;
}

TEST(Readme, ShowsWhatItsCommandsPrint) {
  int compared = 0;
  for (const Shown& shown : shown_in_readme()) {
    std::vector<std::string> words = {folder("HERD_BINARY_DIR") + "/herd"};
    std::copy_if(shown.command.begin(), shown.command.end(), std::back_inserter(words),
                 [](const std::string& word) { return word != "--measure"; });  // takes seconds
    ChildProcess herd(words);
    EXPECT_EQ(herd.wait(), 0) << herd.output();
    if (shown.command.front() == "explain") {  // its times are those of this host
      EXPECT_EQ(outline(herd.output()), outline(shown.output));
    } else {
      EXPECT_EQ(herd.output(), shown.output);
    }
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

}  // namespace
}  // namespace herd::launch
