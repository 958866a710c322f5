// Packs whole documents into sequences of `context` tokens, with as little padding as best-fit finds. A document of n
// ids has n - 1 tokens with a target; one with more than `context` of them is cut into parts, which share one id as
// windows do. A document of one id has no target, and is left out.
//   The longest parts go first, each into the fullest sequence that has room for it, or else a new one. Within a
//   sequence parts lie in the order of the file. All of it is a pure function of the ends and of `context`.
// Threads: const methods from any.
// Source: Ding et al. 2024, arXiv:2404.10830 (best-fit packing).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace herd {

// Names tokens [begin, begin + tokens) of a file; their targets are [begin + 1, begin + tokens + 1).
struct DocumentPart {
  int64_t begin = 0, tokens = 0;
  bool operator==(const DocumentPart&) const = default;
};

class DocumentPacking {
 public:
  // REQUIRES ends that rise, each > 0, and context >= 1.
  DocumentPacking(const std::vector<int64_t>& ends, int64_t context);
  int64_t sequences() const { return static_cast<int64_t>(first_part_.size()) - 1; }
  std::span<const DocumentPart> parts_of(int64_t sequence) const;
  int64_t tokens() const { return tokens_; }  // with targets, in all sequences
  int64_t documents() const { return documents_; }
  int64_t cut_documents() const { return cut_documents_; }

 private:
  std::vector<DocumentPart> parts_;  // by sequence
  std::vector<int64_t> first_part_;  // by sequence, and one more: the number of parts
  int64_t tokens_ = 0, documents_ = 0, cut_documents_ = 0;
};

}  // namespace herd
