#include "herd/data/document_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "herd/storage/checksum.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

constexpr uint32_t kChecksumOfIds = 0x12345678;

class DocumentFileTest : public testing::Test {
 protected:
  void SetUp() override {
    write_document_file(path_, {3, 4, 9}, kChecksumOfIds);
    bytes_ = read_text(path_);
  }
  // Reads the file with some bytes of it changed, and with checksums that fit unless told otherwise.
  std::vector<int64_t> read_changed(size_t at, const std::string& with, bool fits = true) {
    std::string bytes = bytes_;
    bytes.replace(at, with.size(), with);
    const auto put = [&](size_t place, size_t begin, size_t count) {
      const uint32_t value = crc32c(std::as_bytes(std::span(bytes).subspan(begin, count)));
      std::memcpy(&bytes[place], &value, sizeof value);
    };
    if (fits) put(20, 64, bytes.size() - 64), put(60, 0, 60);
    write_text(path_, bytes);
    return read_document_file(path_, 9, kChecksumOfIds);
  }

  TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_ / "a.documents";
  std::string bytes_;
};

TEST_F(DocumentFileTest, GivesBackTheEnds) {
  EXPECT_EQ(read_document_file(path_, 9, kChecksumOfIds), (std::vector<int64_t>{3, 4, 9}));
  EXPECT_EQ(bytes_.size(), 64u + 3 * 8);
  write_document_file(path_, {}, 0);
  EXPECT_TRUE(read_document_file(path_, 0, 0).empty());
}

TEST_F(DocumentFileTest, LiesBesideItsTokens_AndIsOfNoOthers) {
  TokenFileWriter writer(folder_ / "b.tokens", 100);
  writer.append(std::vector<int>{1, 2, 3, 4});
  const uint32_t checksum = writer.checksum();
  writer.commit();
  const TokenFile tokens(folder_ / "b.tokens");
  EXPECT_ERROR(read_document_ends(tokens), Code::kBadConfig, "no file", "b.documents", "herd tokenize", "data.packing");
  write_document_file(folder_ / "b.documents", {1, 4}, checksum);
  EXPECT_EQ(read_document_ends(tokens), (std::vector<int64_t>{1, 4}));
  write_document_file(folder_ / "b.documents", {1, 5}, checksum);
  EXPECT_ERROR(read_document_ends(tokens), Code::kCorruptFile, "at byte 24", "5 tokens", "are 4");
  write_document_file(folder_ / "b.documents", {1, 4}, checksum + 1);
  EXPECT_ERROR(read_document_ends(tokens), Code::kCorruptFile, "at byte 24");
}

TEST_F(DocumentFileTest, RefusesWhatIsNoneNamingTheByte) {
  const auto end = [](int64_t value) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &value, 8);
    return bytes;
  };
  EXPECT_ERROR(read_changed(0, "HERD"), Code::kCorruptFile, "at byte 0", "herd-documents");
  EXPECT_ERROR(read_changed(16, "\x02"), Code::kCorruptFile, "at byte 16", "version 2");
  EXPECT_ERROR(read_changed(24, "\x08"), Code::kCorruptFile, "at byte 24", "of 8 tokens");
  EXPECT_ERROR(read_changed(32, "\x02"), Code::kCorruptFile, "at byte 32", "states 2 documents", "24 bytes follow");
  EXPECT_ERROR(read_changed(32, "\xff\xff\xff\xff\xff\xff\xff\xff"), Code::kCorruptFile, "at byte 32");
  EXPECT_ERROR(read_changed(44, "x", false), Code::kCorruptFile, "at byte 60", "checksum");
  EXPECT_ERROR(read_changed(64, end(2), false), Code::kCorruptFile, "at byte 20", "checksum");
  EXPECT_ERROR(read_changed(72, end(3)), Code::kCorruptFile, "at byte 72", "end 3 is not behind 3");
  EXPECT_ERROR(read_changed(64, end(0)), Code::kCorruptFile, "at byte 64", "end 0 is not behind 0");
  EXPECT_ERROR(read_changed(72, end(-1)), Code::kCorruptFile, "at byte 72");
  EXPECT_ERROR(read_changed(80, end(8)), Code::kCorruptFile, "at byte 80", "ends at 8", "9 tokens");
  for (const size_t size : {size_t{0}, size_t{10}, size_t{63}, size_t{64}, bytes_.size() - 1}) {
    write_text(path_, bytes_.substr(0, size));
    EXPECT_ERROR(read_document_file(path_, 9, kChecksumOfIds), Code::kCorruptFile, "at byte");
  }
}

}  // namespace
}  // namespace herd
