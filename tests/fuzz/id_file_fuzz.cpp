// Any bytes as a file of token ids of each kind: read, or refused with kBadConfig or kCorruptFile; every id that is
// read is in the vocabulary.
#include <cstdlib>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/data/id_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kVocabulary = 300;
  for (const char* name : {"a.npy", "a.jsonl", "a.bin"}) {
    try {
      herd::read_ids({.path = name, .raw = herd::IdType{2, false}, .vocabulary = kVocabulary},
                     std::as_bytes(std::span(data, size)), [&](std::span<const int> ids, bool) {
                       ++num_accepted;
                       if (ids.empty() || ids.size() > size) std::abort();
                       for (const int id : ids)
                         if (id < 0 || id >= kVocabulary) std::abort();
                     });
    } catch (const herd::Error& error) {
      if (error.code() != herd::Code::kBadConfig && error.code() != herd::Code::kCorruptFile) std::abort();
    }
  }
  return 0;
}
