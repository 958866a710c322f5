// Files of document ends: whatever the bytes, ends that rise up to the number of tokens, or kCorruptFile. The bytes are
// tried again with checksums that fit, and with the tokens that they state.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "accepted.h"
#include "checksummed_file.h"
#include "herd/base/error.h"
#include "herd/data/document_file.h"

namespace {

constexpr size_t kHeaderBytes = 64, kEndsChecksum = 20, kTokens = 24, kIdsChecksum = 40, kHeaderChecksum = 60;

void read(const std::vector<uint8_t>& bytes, int64_t tokens, uint32_t ids_checksum) {
  try {
    int64_t last = 0;
    for (const int64_t end : herd::read_document_file(path_of(bytes), tokens, ids_checksum)) {
      if (end <= last) std::abort();
      last = end;
    }
    if (last != tokens) std::abort();
    if (last > 0) ++num_accepted;
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile) throw;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  read(bytes, 9, 0);
  if (size < kHeaderBytes) return 0;
  put_checksum(bytes, kEndsChecksum, std::span(bytes).subspan(kHeaderBytes));
  put_checksum(bytes, kHeaderChecksum, std::span(bytes).first(kHeaderChecksum));
  int64_t tokens;
  uint32_t ids_checksum;
  std::memcpy(&tokens, &bytes[kTokens], sizeof tokens);
  std::memcpy(&ids_checksum, &bytes[kIdsChecksum], sizeof ids_checksum);
  read(bytes, tokens, ids_checksum);
  return 0;
}
