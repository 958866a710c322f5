// Token files, in memory: whatever the bytes, ids below the vocabulary, or kCorruptFile. The bytes are tried again with
// checksums that fit, so that mutations get past that rule.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "accepted.h"
#include "checksummed_file.h"
#include "herd/base/error.h"
#include "herd/data/token_file.h"

namespace {

constexpr size_t kHeaderBytes = 64, kIdsChecksum = 20, kHeaderChecksum = 60;

void read(const std::vector<uint8_t>& bytes) {
  try {
    const herd::TokenFile tokens(path_of(bytes));
    std::vector<int64_t> ids(static_cast<size_t>(std::min<int64_t>(tokens.count(), 1000)));
    tokens.read(tokens.count() - static_cast<int64_t>(ids.size()), ids);
    for (const int64_t id : ids) {
      if (id < 0 || id >= tokens.vocabulary()) std::abort();
    }
    tokens.verify();
    if (!ids.empty()) ++num_accepted;
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile) throw;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  read(bytes);
  if (size < kHeaderBytes) return 0;
  put_checksum(bytes, kIdsChecksum, std::span(bytes).subspan(kHeaderBytes));
  put_checksum(bytes, kHeaderChecksum, std::span(bytes).first(kHeaderChecksum));
  read(bytes);
  return 0;
}
