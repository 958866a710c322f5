// Defines the shape of one parameter, and how the ranks of the tensor axis cut it. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace herd::spec {

// Describes a range of a parameter's cut_dim that is cut over ranks by itself, such as the rows of q in a fused qkv.
// `copies` neighbours of the tensor axis hold each part: more than 1 where there are fewer key and value heads than
// ranks.
struct CutSection {
  int64_t size = 0;  // indices of cut_dim
  int copies = 1;
};

struct ParameterShape {
  std::string name;                       // "h.3.attn.qkv.weight"
  std::vector<int64_t> sizes;             // sizes of the whole parameter
  int cut_dim = -1;                       // dimension that tensor-parallel ranks share; -1 = each rank holds the whole
  std::vector<CutSection> sections = {};  // parts of cut_dim, one after the other; empty = one part
  int64_t sections_begin = 0;  // index of cut_dim where the sections begin; another group has those before it
  double used = 1;             // share of its elements that each row is multiplied with: less than 1 for experts
  int64_t elements() const;    // returns the elements of its sections, or of all of it
  // Returns the elements that the rank at `place` of `tp` tensor-parallel ranks holds.
  int64_t elements_of_rank(int tp, int place) const;
};

struct IndexSpan {
  int64_t begin = 0, end = 0;  // indices [begin, end)
  bool operator==(const IndexSpan&) const = default;
};

// Returns the indices of cut_dim that the rank at `place` of `tp` holds, a span of each section; nothing for a whole
// parameter. In a section of n indices and c copies, place p has part q = p / c of r = tp / c parts. That is [n q / r,
// n (q + 1) / r), rounded down.
std::vector<IndexSpan> cut_spans(const ParameterShape& parameter, int tp, int place);

}  // namespace herd::spec
