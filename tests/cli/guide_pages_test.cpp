// What these pages of the guide show of herd's commands is what they print, and their pictures are what they draw.
// HERD_UPDATE_GOLDEN=1 writes both anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "../launch/child_process.h"
#include "tests/golden.h"
#include "tests/support/temporary_folder.h"

namespace herd::launch {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) { return std::getenv(name) != nullptr ? std::getenv(name) : "."; }

// Runs a command that a page shows, from the root of the tree. Its pictures are compared with those in the guide.
std::string output_of(const std::string& arguments) {
  const fs::path source = environment("HERD_SOURCE_DIR");
  const TemporaryFolder drawn;
  std::vector<std::string> words = {environment("HERD_BINARY_DIR") + "/herd"};
  std::vector<std::string> pictures;
  std::istringstream rest(arguments);
  for (std::string word; rest >> word;) {
    if (word.ends_with(".svg")) {
      pictures.push_back(word);
      word = drawn.path() / fs::path(word).filename();
    } else if (fs::exists(source / word)) {
      word = source / word;
    }
    words.push_back(word);
  }
  ChildProcess herd(words);
  EXPECT_EQ(herd.wait(), 0) << herd.output();
  std::string output = herd.output();
  for (const std::string& picture : pictures) {
    const std::string file = drawn.path() / fs::path(picture).filename();
    testing_support::expect_golden(picture, read_text(file));
    if (const size_t at = output.find(file); at != std::string::npos) output.replace(at, file.size(), picture);
  }
  return output;
}

struct Page {
  const char* name;
  int least_commands;
};

void PrintTo(const Page& page, std::ostream* out) { *out << page.name; }

class GuidePages : public testing::TestWithParam<Page> {};

TEST_P(GuidePages, ShowWhatTheirCommandsPrint) {
  const std::string file = std::string("docs/guide/") + GetParam().name + ".md";
  std::istringstream lines(read_text(fs::path(environment("HERD_SOURCE_DIR")) / file));
  std::string written;
  int commands = 0;
  bool shown = false;  // what the page has of the command's output
  for (std::string line; std::getline(lines, line);) {
    shown = shown && !line.starts_with("```");
    if (shown) continue;
    written += line + "\n";
    if (!line.starts_with("$ herd ")) continue;
    written += output_of(line.substr(7));
    shown = true;
    ++commands;
  }
  EXPECT_GE(commands, GetParam().least_commands);
  testing_support::expect_golden(file, written);
}

INSTANTIATE_TEST_SUITE_P(Guide, GuidePages,
                         testing::Values(Page{"pipelines", 8}, Page{"memory", 5}, Page{"priority", 6}),
                         [](const auto& page) { return std::string(page.param.name); });

}  // namespace
}  // namespace herd::launch
