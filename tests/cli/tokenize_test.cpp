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

TEST(TokenizeCommand, TakesIdsThatAnotherTokenizerMade) {
  TemporaryFolder folder;
  write_text(folder / "ids.bin", std::string("\x05\x00\x06\x00\x07\x00", 6));
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_tokenize({.files = {folder / "ids.bin"},
                          .out = folder / "out",
                          .vocabulary = 50257,
                          .validation = 0,
                          .ids = true,
                          .dtype = "uint16",
                          .end_of_text = 50256}),
            0);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("out: 4 training and 0 validation tokens, vocabulary 50257, in "), std::string::npos)
      << printed;
  EXPECT_EQ(printed.find("note:"), std::string::npos) << printed;
  EXPECT_FALSE(std::filesystem::exists(folder / "out/tokenizer.model"));
}

TEST(TokenizeCommand, SaysThatNothingIsLeftForValidation) {
  TemporaryFolder folder;
  write_text(folder / "ids.jsonl", "[1, 2, 3]\n[4, 5]\n");
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_tokenize({.files = {folder / "ids.jsonl"}, .out = folder / "out", .vocabulary = 9, .ids = true}), 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("5 training and 0 validation tokens"), std::string::npos) << printed;
  EXPECT_NE(printed.find("note: no tokens for validation"), std::string::npos) << printed;
  EXPECT_NE(printed.find("the 2 of which are too few for --validation 0.05\n  fix: more documents"), std::string::npos)
      << printed;
}

TEST(TokenizeCommand, SaysWhatDoesNotComeBackFromTheTokens) {
  TemporaryFolder folder;
  std::string text = "caf\xE9 \xE2\x96\x81mark\n";
  for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i) + " of a text about a herd\n";
  write_text(folder / "a.txt", text);
  TokenizeOptions options{.files = {folder / "a.txt"}, .out = folder / "out", .vocabulary = 320};
  EXPECT_ERROR(run_tokenize(options), Code::kBadConfig, "a.txt at byte 3: E9 is no UTF-8", "--replace-bad-bytes");
  options.replace_bad_bytes = true;
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_tokenize(options), 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("note: 1 bytes are no UTF-8; each is U+FFFD"), std::string::npos) << printed;
  EXPECT_NE(printed.find("note: 1 characters U+2581 of the text come back"), std::string::npos) << printed;
}

TEST(TokenizeCommand, PassesOnWhatIsWrong) {
  TemporaryFolder folder;
  EXPECT_ERROR(run_tokenize({.files = {folder / "a.jsonl"}, .out = folder / "out", .ids = true}), Code::kBadConfig,
               "fix: --vocab N");
  EXPECT_ERROR(run_tokenize({.files = {folder / "a.txt"}, .out = folder / "out", .end_of_text = 1}), Code::kBadConfig,
               "are of --ids", "fix:");
  EXPECT_ERROR(run_tokenize({.files = {folder / "no.txt"}, .out = folder / "out"}), Code::kBadConfig, "no.txt", "fix:");
}

}  // namespace
}  // namespace herd::cli
