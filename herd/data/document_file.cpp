#include "herd/data/document_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <string>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/checksum.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/readable_file.h"

namespace herd {
namespace {

static_assert(std::endian::native == std::endian::little, "document files are little-endian");

constexpr int64_t kHeaderSize = 64, kBytesOfEnd = 8;
constexpr char kDocumentsName[16] = "herd-documents\n";
constexpr uint32_t kDocumentsVersion = 1;

// Holds the first 64 bytes of a file, as they lie there.
struct DocumentsHeader {
  char name[16];
  uint32_t version;
  uint32_t ends_checksum;
  uint64_t tokens;
  uint64_t count;
  uint32_t ids_checksum;
  uint32_t reserved[4];
  uint32_t header_checksum;  // of the 60 bytes before it
};
static_assert(sizeof(DocumentsHeader) == kHeaderSize && offsetof(DocumentsHeader, header_checksum) == 60);

uint32_t checksum_of_header(const DocumentsHeader& header) {
  return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(DocumentsHeader, header_checksum)));
}

[[noreturn]] void corrupt_documents(const std::filesystem::path& path, int64_t offset, const std::string& rule) {
  throw Error(Code::kCorruptFile, path.string() + " at byte " + std::to_string(offset) + ": " + rule +
                                      "\n  fix: write the folder again with herd tokenize");
}

void check_header(const std::filesystem::path& path, const DocumentsHeader& header, int64_t size, int64_t tokens,
                  uint32_t ids_checksum) {
  const auto fail = [&](int64_t offset, const std::string& rule) { corrupt_documents(path, offset, rule); };
  if (std::memcmp(header.name, kDocumentsName, sizeof header.name) != 0)
    fail(0, "a file of document ends starts with \"herd-documents\" and a line feed; this one does not");
  if (size < kHeaderSize) fail(size, "the header has 64 bytes, the file ends after " + std::to_string(size));
  if (header.version != kDocumentsVersion)
    fail(16, "version " + std::to_string(header.version) + " is not known, this herd reads version 1");
  if (header.header_checksum != checksum_of_header(header))
    fail(60, "the header's checksum is " + format_crc32c(header.header_checksum) + ", its bytes give " +
                 format_crc32c(checksum_of_header(header)));
  if (header.tokens != static_cast<uint64_t>(tokens) || header.ids_checksum != ids_checksum)
    fail(24, "it is of " + std::to_string(header.tokens) + " tokens with checksum " +
                 format_crc32c(header.ids_checksum) + ", but the tokens beside it are " + std::to_string(tokens) +
                 " with checksum " + format_crc32c(ids_checksum));
  const auto bytes = static_cast<uint64_t>(size - kHeaderSize);
  if (bytes % kBytesOfEnd != 0 || header.count != bytes / kBytesOfEnd)
    fail(32, "the header states " + std::to_string(header.count) + " documents of 8 bytes, but " +
                 std::to_string(bytes) + " bytes follow it");
}

}  // namespace

std::filesystem::path documents_path(std::filesystem::path tokens) { return tokens.replace_extension(".documents"); }

std::vector<int64_t> read_document_file(const std::filesystem::path& path, int64_t tokens, uint32_t ids_checksum) {
  const ReadableFile file(path);
  const auto read = [&](int64_t offset, std::span<std::byte> out) {
    const int64_t got = file.read_at(offset, out);
    if (got != static_cast<int64_t>(out.size()))
      corrupt_documents(path, offset + got, "there is nothing: it was cut while it was read");
  };
  DocumentsHeader header{};
  read(0, std::as_writable_bytes(std::span(&header, 1))
              .first(static_cast<size_t>(std::min<int64_t>(file.size(), kHeaderSize))));
  check_header(path, header, file.size(), tokens, ids_checksum);
  std::vector<int64_t> ends(header.count);
  read(kHeaderSize, std::as_writable_bytes(std::span(ends)));
  const uint32_t actual = crc32c(std::as_bytes(std::span(ends)));
  if (actual != header.ends_checksum)
    corrupt_documents(path, 20,
                      "the checksum of the ends is " + format_crc32c(header.ends_checksum) + ", their bytes give " +
                          format_crc32c(actual));
  int64_t last = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] <= last)
      corrupt_documents(path, kHeaderSize + static_cast<int64_t>(i) * kBytesOfEnd,
                        "end " + std::to_string(ends[i]) + " is not behind " + std::to_string(last));
    last = ends[i];
  }
  if (last != tokens)
    corrupt_documents(
        path, file.size() - kBytesOfEnd,
        "the last document ends at " + std::to_string(last) + ", but there are " + std::to_string(tokens) + " tokens");
  return ends;
}

std::vector<int64_t> read_document_ends(const TokenFile& tokens) {
  const std::filesystem::path path = documents_path(tokens.path());
  if (!is_file(path))
    throw Error(Code::kBadConfig, "there is no file " + path.string() + ", which says where documents end" +
                                      "\n  fix: write the folder again with herd tokenize, which keeps the ends of "
                                      "documents, or leave data.packing out");
  return read_document_file(path, tokens.count(), tokens.checksum());
}

void write_document_file(const std::filesystem::path& path, const std::vector<int64_t>& ends, uint32_t ids_checksum) {
  DocumentsHeader header{};
  std::memcpy(header.name, kDocumentsName, sizeof header.name);
  header.version = kDocumentsVersion;
  header.ends_checksum = crc32c(std::as_bytes(std::span(ends)));
  header.tokens = ends.empty() ? 0 : static_cast<uint64_t>(ends.back());
  header.count = ends.size();
  header.ids_checksum = ids_checksum;
  header.header_checksum = checksum_of_header(header);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&header, 1)));
  file.write(std::as_bytes(std::span(ends)));
  file.commit();
}

}  // namespace herd
