// Describes the part of a global tensor that one rank or one file holds. It is a box of indices, flattened row-major,
// and a range of elements of that flattened box.
//   tensor parallel   a box (rows or columns), all of its elements
//   ZeRO              the whole tensor as box, a range of its elements
//   both              a box, and a range within it
// Any two slices of a tensor meet in runs of consecutive elements. So a checkpoint that was written in one layout is
// read in any other. Threads: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace herd {

struct IndexRange {
  int64_t begin = 0, end = 0;  // [begin, end)
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
  auto operator<=>(const IndexRange&) const = default;
};

struct TensorSlice {
  std::vector<IndexRange> box;  // one range per dimension of the global tensor; none for a tensor without dimensions
  IndexRange elements;          // elements of the flattened box
  bool operator==(const TensorSlice&) const = default;
};

TensorSlice whole_slice(const std::vector<int64_t>& shape);
// Returns the slice of elements [begin, end) of the flattened tensor.
TensorSlice slice_of_elements(const std::vector<int64_t>& shape, int64_t begin, int64_t end);
int64_t num_box_elements(const TensorSlice& slice);  // counts the elements of the whole box

// Says what is wrong with a slice of a tensor of this shape; empty = nothing.
std::string find_fault(const TensorSlice& slice, const std::vector<int64_t>& shape);

// Says what keeps these slices from holding every element of the tensor exactly once; empty = nothing. REQUIRES that
// any two slices share a box or have disjoint boxes.
std::string find_cover_fault(const std::vector<TensorSlice>& slices, const std::vector<int64_t>& shape);

// Calls visit(a, b, count) for every maximal run of elements that both slices hold. The run has `count` elements. It
// begins at element a of the first slice, and at element b of the second.
void for_each_common_run(const TensorSlice& first, const TensorSlice& second,
                         const std::function<void(int64_t a, int64_t b, int64_t count)>& visit);

}  // namespace herd
