#include "herd/data/token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <numeric>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

std::filesystem::path write_ids(const std::filesystem::path& path, int64_t vocabulary, const std::vector<int>& ids) {
  TokenFileWriter writer(path, vocabulary);
  writer.append(std::span(ids).first(ids.size() / 2));
  writer.append(std::span(ids).subspan(ids.size() / 2));
  writer.commit();
  return path;
}

TEST(TokenFile, ReturnsTheIdsThatWereWritten_InTwoAndInFourBytes) {
  TemporaryFolder folder;
  for (const int vocabulary : {1000, 65536, 65537, 2000000}) {
    std::vector<int> ids(1000);
    std::iota(ids.begin(), ids.end(), vocabulary - 1000);
    const TokenFile file(write_ids(folder / "x.tokens", vocabulary, ids));
    EXPECT_EQ(file.vocabulary(), vocabulary);
    EXPECT_EQ(file.count(), 1000);
    std::vector<int64_t> back(1000);
    file.read(0, back);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), back.begin()));
    file.read(999, std::span(back).first(1));
    EXPECT_EQ(back[0], vocabulary - 1);
    file.verify();
    EXPECT_EQ(std::filesystem::file_size(folder / "x.tokens"), 64u + 1000u * (vocabulary <= 65536 ? 2u : 4u));
  }
}

TEST(TokenFile, IsNoFifo_WhichWouldBlock) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "x.tokens").c_str(), 0600), 0);
  EXPECT_ERROR(TokenFile(folder / "x.tokens"), Code::kStorage, "x.tokens, which must be a file");
}

TEST(TokenFile, RefusesEveryTruncation) {
  TemporaryFolder folder;
  const std::string whole = read_text(write_ids(folder / "x.tokens", 100, {1, 2, 3, 4, 5}));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_text(folder / "cut.tokens", whole.substr(0, bytes));
    EXPECT_ERROR(TokenFile(folder / "cut.tokens"), Code::kCorruptFile, "cut.tokens", "at byte", "fix:");
  }
  write_text(folder / "long.tokens", whole + "x");
  EXPECT_ERROR(TokenFile(folder / "long.tokens"), Code::kCorruptFile, "5 ids of 2 bytes", "11 bytes follow");
}

TEST(TokenFile, SaysThatItWasCut_WhileItWasRead) {
  TemporaryFolder folder;
  std::vector<int> ids(100'000, 7);
  const auto path = write_ids(folder / "x.tokens", 100, ids);
  const TokenFile file(path);
  std::vector<int64_t> back(1000);
  for (const uintmax_t bytes : {64 + 2 * 99'500, 64 + 1, 0}) {
    std::filesystem::resize_file(path, bytes);
    EXPECT_ERROR(file.read(99'000, back), Code::kCorruptFile, path.string() + " at byte ",
                 "had 200064 bytes when it was opened: it was cut while it was read", "fix: write it again");
    EXPECT_ERROR(file.verify(), Code::kCorruptFile, "it was cut");
  }
  write_ids(path, 100, ids);  // by rename: the file that is open goes on
  const TokenFile again(path);
  std::filesystem::remove(path);
  again.read(99'000, back);
  EXPECT_EQ(back[999], 7);
}

// In the same place and as long: its bytes alone would be ids of another text.
TEST(TokenFile, SaysThatItWasWrittenAgain_WhileItWasRead) {
  const TemporaryFolder folder;
  const auto path = write_ids(folder / "x.tokens", 100, std::vector<int>(1000, 7));
  const auto other = write_ids(folder / "y.tokens", 100, std::vector<int>(1000, 8));
  const TokenFile file(path);
  std::vector<int64_t> back(1000);
  using namespace std::chrono_literals;
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + 1s);
  file.read(0, back);  // touched alone
  EXPECT_EQ(back[999], 7);
  write_text(path, read_text(other));
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + 2s);
  EXPECT_ERROR(file.read(0, back), Code::kCorruptFile, path.string() + " at byte 0", "written again while it was read",
               "fix: write it again");
}

TEST(TokenFile, RefusesEveryFlippedBit) {
  TemporaryFolder folder;
  const std::string whole = read_text(write_ids(folder / "x.tokens", 100, {1, 2, 3, 4, 5}));
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    write_text(folder / "flipped.tokens", flipped);
    EXPECT_ERROR(TokenFile(folder / "flipped.tokens").verify(), Code::kCorruptFile, "flipped.tokens");
  }
}

TEST(TokenFile, NamesTheByteOfAnIdBeyondTheVocabulary) {
  TemporaryFolder folder;
  std::string text = read_text(write_ids(folder / "x.tokens", 100, {1, 2, 3}));
  text[64 + 2] = 100;
  write_text(folder / "x.tokens", text);
  std::vector<int64_t> ids(3);
  EXPECT_ERROR(TokenFile(folder / "x.tokens").read(0, ids), Code::kCorruptFile, "x.tokens at byte 66",
               "id 100 is not below the vocabulary 100");
}

TEST(TokenFile, NamesAVersionThatIsNotKnown) {
  TemporaryFolder folder;
  std::string text = read_text(write_ids(folder / "x.tokens", 100, {1}));
  text[12] = 2;
  write_text(folder / "x.tokens", text);
  EXPECT_ERROR(TokenFile(folder / "x.tokens"), Code::kCorruptFile, "at byte 12", "version 2", "reads version 1");
}

TEST(TokenFile, TellsAModelWithTooSmallAVocabulary) {
  TemporaryFolder folder;
  const TokenFile file(write_ids(folder / "x.tokens", 4096, {1}));
  file.require_vocabulary(4096);
  EXPECT_ERROR(file.require_vocabulary(4095), Code::kBadConfig, "model.vocab = 4095", "4096", "fix: vocab = 4096");
}

TEST(TokenFileWriter, RefusesIdsOutsideTheVocabularyAndLeavesNothing) {
  TemporaryFolder folder;
  for (const int id : {-1, 100}) {
    TokenFileWriter writer(folder / "x.tokens", 100);
    EXPECT_ERROR(writer.append(std::vector<int>{id}), Code::kBadConfig, std::to_string(id));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace herd
