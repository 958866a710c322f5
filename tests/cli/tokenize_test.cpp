#include "herd/cli/tokenize.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd::cli {
namespace {

TEST(TokenizeCommand, WritesTheFolderAndSaysWhatIsInIt) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i) + " of a text about a herd\n";
  write_text(folder / "a.txt", text);
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_tokenize({.files = {folder / "a.txt"}, .out = folder / "out", .vocabulary = 320}), 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("training and "), std::string::npos) << printed;
  EXPECT_NE(printed.find("vocabulary 320"), std::string::npos) << printed;
  for (const char* name : {"tokenizer.model", "train.tokens", "val.tokens", "meta.json"}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(folder / "out" / name)) << name;
  }
}

TEST(TokenizeCommand, PassesOnWhatIsWrong) {
  TemporaryFolder folder;
  EXPECT_ERROR(run_tokenize({.files = {folder / "no.txt"}, .out = folder / "out"}), Code::kBadConfig, "no.txt", "fix:");
}

}  // namespace
}  // namespace herd::cli
