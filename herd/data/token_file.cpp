#include "herd/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/storage/checksum.h"

namespace herd {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr int64_t kHeaderBytes = 64;
constexpr char kName[] = "herd-tokens\n";  // 12 bytes without the terminator
constexpr uint32_t kVersion = 1;
constexpr int64_t kPortion = 1 << 18;  // ids that verify() reads at a time

// Holds the first 64 bytes of a file, as they lie there.
struct Header {
  char name[12];
  uint32_t version;
  uint32_t id_bytes;
  uint32_t ids_checksum;
  uint64_t vocabulary;
  uint64_t count;
  uint32_t reserved[5];
  uint32_t header_checksum;  // of the 60 bytes before it
};
static_assert(sizeof(Header) == kHeaderBytes && offsetof(Header, header_checksum) == 60);

uint32_t checksum_of(const Header& header) {
  return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_checksum)));
}

int64_t id_bytes_for(int64_t vocabulary) { return vocabulary <= 65536 ? 2 : 4; }

}  // namespace

void TokenFile::corrupt(int64_t offset, const std::string& rule) const {
  throw Error(Code::kCorruptFile, path().string() + " at byte " + std::to_string(offset) + ": " + rule +
                                      "\n  fix: write it again with herd tokenize");
}

TokenFile::TokenFile(std::filesystem::path path) : file_(std::move(path)) {
  const int64_t size = file_.size();
  Header header{};
  read_bytes(0, std::as_writable_bytes(std::span(&header, 1)).first(static_cast<size_t>(std::min(size, kHeaderBytes))));
  if (size < 12 || std::memcmp(header.name, kName, 12) != 0) {
    corrupt(0, "a token file starts with \"herd-tokens\" and a line feed; this one does not");
  }
  if (size < kHeaderBytes) corrupt(size, "the header has 64 bytes, the file ends after " + std::to_string(size));
  if (header.version != kVersion) {
    corrupt(12, "version " + std::to_string(header.version) + " is not known, this herd reads version 1");
  }
  if (header.header_checksum != checksum_of(header)) {
    corrupt(60, "the header's checksum is " + format_crc32c(header.header_checksum) + ", its bytes give " +
                    format_crc32c(checksum_of(header)));
  }
  const uint64_t limit = uint64_t{1} << 31;
  if (header.vocabulary < 1 || header.vocabulary > limit) {
    corrupt(24, "vocabulary " + std::to_string(header.vocabulary) + " is not in [1, 2147483648]");
  }
  vocabulary_ = static_cast<int64_t>(header.vocabulary);
  id_bytes_ = header.id_bytes;
  if (id_bytes_ != id_bytes_for(vocabulary_)) {
    corrupt(16, "ids of " + std::to_string(id_bytes_) + " bytes, but vocabulary " + std::to_string(vocabulary_) +
                    " takes ids of " + std::to_string(id_bytes_for(vocabulary_)));
  }
  const uint64_t data_bytes = static_cast<uint64_t>(size - kHeaderBytes);
  if (header.count > data_bytes / header.id_bytes || header.count * header.id_bytes != data_bytes) {
    corrupt(32, "the header states " + std::to_string(header.count) + " ids of " + std::to_string(id_bytes_) +
                    " bytes, but " + std::to_string(data_bytes) + " bytes follow it");
  }
  count_ = static_cast<int64_t>(header.count);
  checksum_ = header.ids_checksum;
  header_checksum_ = header.header_checksum;
}

// A file that was written again in its place has other ids than those that the header of before belongs to.
void TokenFile::require_unchanged() const {
  if (!file_.has_changed()) return;
  Header header{};
  read_bytes(0, std::as_writable_bytes(std::span(&header, 1)));
  if (checksum_of(header) == header_checksum_) return;
  corrupt(0, "the header is another one than when the file was opened: it was written again while it was read");
}

void TokenFile::read_bytes(int64_t offset, std::span<std::byte> out) const {
  const int64_t got = file_.read_at(offset, out);
  if (got == static_cast<int64_t>(out.size())) return;
  corrupt(offset + got, "there is nothing, but the file had " + std::to_string(file_.size()) +
                            " bytes when it was opened: it was cut while it was read");
}

int64_t TokenFile::id_from(const std::byte* at, int64_t index) const {
  int64_t id;
  if (id_bytes_ == 2) {
    uint16_t narrow;
    std::memcpy(&narrow, at, sizeof narrow);
    id = narrow;
  } else {
    uint32_t wide;
    std::memcpy(&wide, at, sizeof wide);
    id = wide;
  }
  if (id >= vocabulary_) {
    corrupt(kHeaderBytes + index * id_bytes_,
            "id " + std::to_string(id) + " is not below the vocabulary " + std::to_string(vocabulary_));
  }
  return id;
}

void TokenFile::read(int64_t begin, std::span<int64_t> out) const {
  const auto n = static_cast<int64_t>(out.size());
  HERD_CHECK(begin >= 0 && n <= count_ && begin <= count_ - n,
             "tokens [" + std::to_string(begin) + ", " + std::to_string(begin + n) + ") of " + std::to_string(count_));
  std::vector<std::byte> bytes(static_cast<size_t>(n * id_bytes_));
  read_bytes(kHeaderBytes + begin * id_bytes_, bytes);
  require_unchanged();
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = id_from(bytes.data() + i * id_bytes_, begin + i);
}

void TokenFile::verify() const {
  std::vector<std::byte> bytes(static_cast<size_t>(kPortion * id_bytes_));
  uint32_t actual = 0;
  for (int64_t begin = 0; begin < count_; begin += kPortion) {
    const auto portion = std::span(bytes).first(static_cast<size_t>(std::min(kPortion, count_ - begin) * id_bytes_));
    read_bytes(kHeaderBytes + begin * id_bytes_, portion);
    actual = crc32c(portion, actual);
  }
  if (actual != checksum_) {
    corrupt(20,
            "the checksum of the ids is " + format_crc32c(checksum_) + ", their bytes give " + format_crc32c(actual));
  }
  std::vector<int64_t> ids(static_cast<size_t>(std::min(kPortion, count_)));
  for (int64_t begin = 0; begin < count_; begin += kPortion)
    read(begin, std::span(ids).first(static_cast<size_t>(std::min(kPortion, count_ - begin))));
}

void TokenFile::require_vocabulary(int64_t model_vocabulary) const {
  if (model_vocabulary >= vocabulary_) return;
  throw Error(Code::kBadConfig, "model.vocab = " + std::to_string(model_vocabulary) +
                                    " is smaller than the vocabulary " + std::to_string(vocabulary_) + " of " +
                                    path().string() + "\n  fix: vocab = " + std::to_string(vocabulary_) +
                                    ", or tokenize with --vocab " + std::to_string(model_vocabulary));
}

TokenFileWriter::TokenFileWriter(std::filesystem::path path, int64_t vocabulary)
    : file_(std::move(path)), vocabulary_(vocabulary) {
  HERD_CHECK(vocabulary >= 1 && vocabulary <= (int64_t{1} << 31), "vocabulary " + std::to_string(vocabulary));
  file_.write(std::string(kHeaderBytes, '\0'));  // commit() fills it in
}

void TokenFileWriter::append(std::span<const int> ids) {
  std::vector<std::byte> bytes;
  bytes.reserve(ids.size() * static_cast<size_t>(id_bytes_for(vocabulary_)));
  for (const int id : ids) {
    if (id < 0 || id >= vocabulary_) {
      throw Error(Code::kBadConfig, "id " + std::to_string(id) + " is not in [0, " + std::to_string(vocabulary_) + ")");
    }
    const auto wide = static_cast<uint32_t>(id);
    const auto* first = reinterpret_cast<const std::byte*>(&wide);
    bytes.insert(bytes.end(), first, first + id_bytes_for(vocabulary_));
  }
  checksum_ = crc32c(bytes, checksum_);
  count_ += static_cast<int64_t>(ids.size());
  file_.write(bytes);
}

void TokenFileWriter::commit() {
  Header header{};
  std::memcpy(header.name, kName, sizeof header.name);
  header.version = kVersion;
  header.id_bytes = static_cast<uint32_t>(id_bytes_for(vocabulary_));
  header.ids_checksum = checksum_;
  header.vocabulary = static_cast<uint64_t>(vocabulary_);
  header.count = static_cast<uint64_t>(count_);
  header.header_checksum = checksum_of(header);
  file_.write_at(0, std::as_bytes(std::span(&header, 1)));
  file_.commit();
}

}  // namespace herd
