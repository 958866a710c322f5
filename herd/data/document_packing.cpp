#include "herd/data/document_packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "herd/base/check.h"

namespace herd {

DocumentPacking::DocumentPacking(const std::vector<int64_t>& ends, int64_t context) {
  HERD_CHECK_GE(context, 1);
  std::vector<DocumentPart> parts;  // in the order of the file
  int64_t begin = 0;
  for (const int64_t end : ends) {
    HERD_CHECK_LT(begin, end);
    const int64_t tokens = end - 1 - begin;
    ++documents_;
    if (tokens > context) ++cut_documents_;
    for (int64_t at = 0; at < tokens; at += context) parts.push_back({begin + at, std::min(context, tokens - at)});
    tokens_ += tokens;
    begin = end;
  }
  std::vector<size_t> longest_first(parts.size());
  std::iota(longest_first.begin(), longest_first.end(), size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](size_t a, size_t b) { return parts[a].tokens > parts[b].tokens; });
  std::map<int64_t, std::vector<int64_t>> sequences_with_room;  // by the number of free tokens
  std::vector<int64_t> sequence_of(parts.size());
  first_part_ = {0};
  for (const size_t part : longest_first) {
    const auto fullest = sequences_with_room.lower_bound(parts[part].tokens);
    int64_t sequence = sequences(), room = context;
    if (fullest == sequences_with_room.end()) {
      first_part_.push_back(0);
    } else {
      room = fullest->first;
      sequence = fullest->second.back();
      fullest->second.pop_back();
      if (fullest->second.empty()) sequences_with_room.erase(fullest);
    }
    sequence_of[part] = sequence;
    ++first_part_[static_cast<size_t>(sequence) + 1];
    if (const int64_t left = room - parts[part].tokens; left > 0) sequences_with_room[left].push_back(sequence);
  }
  std::partial_sum(first_part_.begin(), first_part_.end(), first_part_.begin());
  parts_.resize(parts.size());
  std::vector<int64_t> next(first_part_.begin(), first_part_.end() - 1);
  for (size_t part = 0; part < parts.size(); ++part)
    parts_[static_cast<size_t>(next[static_cast<size_t>(sequence_of[part])]++)] = parts[part];
}

std::span<const DocumentPart> DocumentPacking::parts_of(int64_t sequence) const {
  HERD_CHECK(sequence >= 0 && sequence < sequences(), "a sequence of the packing");
  const int64_t first = first_part_[static_cast<size_t>(sequence)],
                end = first_part_[static_cast<size_t>(sequence) + 1];
  return std::span(parts_).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
}

}  // namespace herd
