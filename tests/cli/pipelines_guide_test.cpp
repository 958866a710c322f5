// What docs/guide/pipelines.md shows of `herd show order` is what it prints. HERD_UPDATE_GOLDEN=1 writes the page anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "../launch/child_process.h"

namespace herd::launch {
namespace {

std::string environment(const char* name) { return std::getenv(name) != nullptr ? std::getenv(name) : "."; }

TEST(PipelinesGuide, ShowsWhatItsCommandsPrint) {
  const std::string path = environment("HERD_SOURCE_DIR") + "/docs/guide/pipelines.md";
  std::ostringstream stored, written;
  stored << std::ifstream(path).rdbuf();
  std::istringstream lines(stored.str());
  int commands = 0;
  bool shown = false;  // what the page has of the command's output
  for (std::string line; std::getline(lines, line);) {
    shown = shown && !line.starts_with("```");
    if (shown) continue;
    written << line << "\n";
    if (!line.starts_with("$ herd ")) continue;
    std::vector<std::string> words = {environment("HERD_BINARY_DIR") + "/herd"};
    std::istringstream rest(line.substr(7));
    for (std::string word; rest >> word;) words.push_back(word);
    ChildProcess herd(words);
    EXPECT_EQ(herd.wait(), 0) << herd.output();
    written << herd.output();
    shown = true;
    ++commands;
  }
  EXPECT_GE(commands, 8);
  if (std::getenv("HERD_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << written.str();
  EXPECT_EQ(stored.str(), written.str());
}

}  // namespace
}  // namespace herd::launch
