#include "herd/storage/tensor_slice.h"

#include <algorithm>
#include <map>

#include "herd/base/check.h"
#include "herd/storage/tensor_type.h"

namespace herd {
namespace {

std::string text_of(const IndexRange& range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

bool overlap(const std::vector<IndexRange>& a, const std::vector<IndexRange>& b) {
  for (size_t d = 0; d < a.size(); ++d) {
    if (std::max(a[d].begin, b[d].begin) >= std::min(a[d].end, b[d].end)) return false;
  }
  return true;
}

using Boxes = std::vector<const std::vector<IndexRange>*>;

constexpr int kMaxCuts = 16;  // cuts of boxes that are tried before each two are compared

bool any_two_overlap(const Boxes& boxes) {
  for (size_t a = 0; a < boxes.size(); ++a) {
    for (size_t b = a + 1; b < boxes.size(); ++b) {
      if (overlap(*boxes[a], *boxes[b])) return true;
    }
  }
  return false;
}

// Returns groups of boxes of which no two meet along the dimension.
std::vector<Boxes> cut_along(Boxes boxes, size_t dim) {
  std::sort(boxes.begin(), boxes.end(), [&](const auto* a, const auto* b) { return (*a)[dim] < (*b)[dim]; });
  std::vector<Boxes> groups;
  int64_t end = 0;
  for (const auto* box : boxes) {
    if (groups.empty() || (*box)[dim].begin >= end) groups.emplace_back();
    groups.back().push_back(box);
    end = std::max(end, (*box)[dim].end);
  }
  return groups;
}

// Cuts the boxes along one dimension after the other, as layouts do, so that few are compared with each other.
bool boxes_overlap(const Boxes& boxes, int cuts = 0) {
  constexpr size_t kFew = 16;
  if (boxes.size() <= kFew || cuts == kMaxCuts) return any_two_overlap(boxes);
  for (size_t dim = 0; dim < boxes[0]->size(); ++dim) {
    const std::vector<Boxes> groups = cut_along(boxes, dim);
    if (groups.size() == 1) continue;
    return std::any_of(groups.begin(), groups.end(),
                       [&](const Boxes& group) { return boxes_overlap(group, cuts + 1); });
  }
  return any_two_overlap(boxes);
}

std::vector<int64_t> row_major_strides(const std::vector<IndexRange>& box) {
  std::vector<int64_t> strides(box.size(), 1);
  for (size_t d = box.size(); d-- > 1;) strides[d - 1] = strides[d] * box[d].size();
  return strides;
}

}  // namespace

TensorSlice whole_slice(const std::vector<int64_t>& shape) {
  const auto count = num_elements(shape);
  HERD_CHECK(count.has_value(), "a shape that fits");
  return slice_of_elements(shape, 0, *count);
}

TensorSlice slice_of_elements(const std::vector<int64_t>& shape, int64_t begin, int64_t end) {
  TensorSlice slice;
  for (const int64_t size : shape) slice.box.push_back({0, size});
  slice.elements = {begin, end};
  return slice;
}

int64_t num_box_elements(const TensorSlice& slice) {
  int64_t count = 1;
  for (const auto& range : slice.box) count *= range.size();
  return count;
}

std::string find_fault(const TensorSlice& slice, const std::vector<int64_t>& shape) {
  if (slice.box.size() != shape.size()) {
    return "a box of " + std::to_string(slice.box.size()) + " dimensions in a tensor of " +
           std::to_string(shape.size());
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto& range = slice.box[d];
    if (range.begin < 0 || range.begin > range.end || range.end > shape[d]) {
      return "indices " + text_of(range) + " of dimension " + std::to_string(d) + ", which has " +
             std::to_string(shape[d]);
    }
  }
  const int64_t count = num_box_elements(slice);
  const auto& elements = slice.elements;
  if (elements.begin < 0 || elements.begin > elements.end || elements.end > count) {
    return "elements " + text_of(elements) + " of a box that has " + std::to_string(count);
  }
  return {};
}

std::string find_cover_fault(const std::vector<TensorSlice>& slices, const std::vector<int64_t>& shape) {
  std::map<std::vector<IndexRange>, std::vector<IndexRange>> by_box;
  for (const auto& slice : slices) {
    if (auto fault = find_fault(slice, shape); !fault.empty()) return fault;
    if (slice.elements.size() > 0) by_box[slice.box].push_back(slice.elements);
  }
  int64_t covered = 0;
  for (auto& [box, ranges] : by_box) {
    std::sort(ranges.begin(), ranges.end());
    int64_t end = 0;
    for (const auto& range : ranges) {
      if (range.begin < end) return "elements " + text_of({range.begin, std::min(end, range.end)}) + " are held twice";
      if (range.begin > end) return "elements " + text_of({end, range.begin}) + " are held by nobody";
      end = range.end;
    }
    const int64_t count = num_box_elements({box, {}});
    if (end != count) return "elements " + text_of({end, count}) + " are held by nobody";
    covered += count;
  }
  Boxes boxes;
  for (const auto& [box, ranges] : by_box) boxes.push_back(&box);
  if (boxes_overlap(boxes)) return "two boxes overlap";
  const int64_t all = num_elements(shape).value_or(-1);
  if (covered == all) return {};
  return "the boxes hold " + std::to_string(covered) + " of " + std::to_string(all) + " elements";
}

void for_each_common_run(const TensorSlice& first, const TensorSlice& second,
                         const std::function<void(int64_t a, int64_t b, int64_t count)>& visit) {
  HERD_CHECK_EQ(first.box.size(), second.box.size());
  const size_t dims = first.box.size();
  std::vector<IndexRange> common(dims);
  for (size_t d = 0; d < dims; ++d) {
    common[d] = {std::max(first.box[d].begin, second.box[d].begin), std::min(first.box[d].end, second.box[d].end)};
    if (common[d].size() <= 0) return;
  }
  // A run spans dimensions [inner, dims): all after `inner` are whole in both boxes.
  size_t inner = dims == 0 ? 0 : dims - 1;
  while (inner > 0 && common[inner] == first.box[inner] && common[inner] == second.box[inner]) --inner;
  const auto strides_a = row_major_strides(first.box), strides_b = row_major_strides(second.box);
  const int64_t run = dims == 0 ? 1 : common[inner].size() * strides_a[inner];

  std::vector<int64_t> index(dims);
  for (size_t d = 0; d < dims; ++d) index[d] = common[d].begin;
  while (true) {
    int64_t a = 0, b = 0;  // where the run begins in the flattened boxes
    for (size_t d = 0; d < dims; ++d) {
      a += (index[d] - first.box[d].begin) * strides_a[d];
      b += (index[d] - second.box[d].begin) * strides_b[d];
    }
    const int64_t from = std::max({int64_t{0}, first.elements.begin - a, second.elements.begin - b});
    const int64_t to = std::min({run, first.elements.end - a, second.elements.end - b});
    if (from < to) visit(a + from - first.elements.begin, b + from - second.elements.begin, to - from);
    size_t d = inner;  // the next index of the dimensions before `inner`
    while (d > 0 && ++index[d - 1] == common[d - 1].end) {
      --d;
      index[d] = common[d].begin;
    }
    if (d == 0) return;
  }
}

}  // namespace herd
