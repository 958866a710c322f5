#include "herd/storage/tensor_slice.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>

namespace herd {
namespace {

// The global indices of a slice's elements, in their order: the definition, by counting.
std::vector<int64_t> global_indices(const TensorSlice& slice, const std::vector<int64_t>& shape) {
  std::vector<int64_t> result;
  for (int64_t element = slice.elements.begin; element < slice.elements.end; ++element) {
    int64_t rest = element, global = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      global += (slice.box[d].begin + rest % slice.box[d].size()) * stride;
      rest /= slice.box[d].size();
      stride *= shape[d];
    }
    result.push_back(global);
  }
  return result;
}

TensorSlice random_slice(const std::vector<int64_t>& shape, std::mt19937& random) {
  const auto part = [&](int64_t size) {
    if (random() % 2 == 0) return IndexRange{0, size};
    int64_t a = static_cast<int64_t>(random() % static_cast<uint64_t>(size + 1));
    int64_t b = static_cast<int64_t>(random() % static_cast<uint64_t>(size + 1));
    return IndexRange{std::min(a, b), std::max(a, b)};
  };
  TensorSlice slice;
  for (const int64_t size : shape) slice.box.push_back(part(size));
  slice.elements = part(num_box_elements(slice));
  return slice;
}

TEST(TensorSlice, CommonRunsAreTheElementsThatBothHold_ForAnyTwoSlices) {
  std::mt19937 random(1);
  const std::vector<std::vector<int64_t>> shapes = {{}, {1}, {7}, {3, 4}, {4, 1, 5}, {2, 3, 4}, {2, 2, 3, 2}};
  for (int round = 0; round < 4000; ++round) {
    const auto& shape = shapes[random() % shapes.size()];
    const TensorSlice first = random_slice(shape, random), second = random_slice(shape, random);
    const auto a_indices = global_indices(first, shape), b_indices = global_indices(second, shape);
    std::vector<int64_t> common, expected;
    for_each_common_run(first, second, [&](int64_t a, int64_t b, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(a_indices.at(static_cast<size_t>(a + i)), b_indices.at(static_cast<size_t>(b + i)));
        common.push_back(a_indices[static_cast<size_t>(a + i)]);
      }
    });
    for (const int64_t index : a_indices) {
      if (std::count(b_indices.begin(), b_indices.end(), index)) expected.push_back(index);
    }
    std::sort(common.begin(), common.end());
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(common, expected);
  }
}

TEST(TensorSlice, FlatShardsMeetInOneRun) {
  int runs = 0;
  for_each_common_run(slice_of_elements({100, 30}, 10, 2000), slice_of_elements({100, 30}, 1000, 3000),
                      [&](int64_t a, int64_t b, int64_t count) {
                        ++runs;
                        EXPECT_EQ(a, 990);
                        EXPECT_EQ(b, 0);
                        EXPECT_EQ(count, 1000);
                      });
  EXPECT_EQ(runs, 1);
}

TEST(TensorSlice, ACoverHoldsEveryElementOnce) {
  const std::vector<int64_t> shape = {4, 6};
  const auto columns = [](int64_t begin, int64_t end, int64_t from, int64_t to) {
    return TensorSlice{{{0, 4}, {begin, end}}, {from, to}};
  };
  EXPECT_EQ(find_cover_fault({whole_slice(shape)}, shape), "");
  EXPECT_EQ(find_cover_fault({slice_of_elements(shape, 7, 24), slice_of_elements(shape, 0, 7)}, shape), "");
  EXPECT_EQ(find_cover_fault({columns(0, 3, 0, 12), columns(3, 6, 5, 12), columns(3, 6, 0, 5)}, shape), "");
  EXPECT_EQ(find_cover_fault({whole_slice({0, 6})}, {0, 6}), "");
  EXPECT_EQ(find_cover_fault({whole_slice({})}, {}), "");
  EXPECT_EQ(find_cover_fault({slice_of_elements(shape, 0, 7)}, shape), "elements [7, 24) are held by nobody");
  EXPECT_EQ(find_cover_fault({slice_of_elements(shape, 0, 7), slice_of_elements(shape, 9, 24)}, shape),
            "elements [7, 9) are held by nobody");
  EXPECT_EQ(find_cover_fault({slice_of_elements(shape, 0, 7), slice_of_elements(shape, 5, 24)}, shape),
            "elements [5, 7) are held twice");
  EXPECT_EQ(find_cover_fault({columns(0, 4, 0, 16), columns(3, 6, 0, 12)}, shape), "two boxes overlap");
  EXPECT_EQ(find_cover_fault({columns(0, 3, 0, 12)}, shape), "the boxes hold 12 of 24 elements");
  EXPECT_EQ(find_cover_fault({}, shape), "the boxes hold 0 of 24 elements");
}

// Comparing each two of 160,000 boxes takes minutes.
TEST(TensorSlice, CoverOfManyBoxesTakesTimeInProportion) {
  constexpr int64_t kRows = 400, kColumns = 400;
  const std::vector<int64_t> shape = {2 * kRows, 3 * kColumns};
  std::vector<TensorSlice> slices;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < kColumns; ++column)
      slices.push_back({{{2 * row, 2 * row + 2}, {3 * column, 3 * column + 3}}, {0, 6}});
  }
  const std::clock_t start = std::clock();  // of the processor, whatever else runs
  EXPECT_EQ(find_cover_fault(slices, shape), "");
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 5);
  slices.back().box[1].begin -= 1;
  slices.back().elements.end = 8;
  EXPECT_EQ(find_cover_fault(slices, shape), "two boxes overlap");
}

// Four arms around a middle, each cut along its length, so that every straight line through all crosses one of them.
TEST(TensorSlice, FindsTheFaultOfBoxesThatNoCutSeparates) {
  constexpr int64_t k = 5;
  std::vector<TensorSlice> slices;
  const auto add = [&](IndexRange rows, IndexRange columns) {
    slices.push_back({{rows, columns}, {0, rows.size() * columns.size()}});
  };
  for (int64_t i = 0; i < k; ++i) {
    add({i, i + 1}, {0, 2 * k});
    add({0, 2 * k}, {2 * k + i, 2 * k + i + 1});
    add({2 * k + i, 2 * k + i + 1}, {k, 3 * k});
    add({k, 3 * k}, {i, i + 1});
    add({k + i, k + i + 1}, {k, 2 * k});
  }
  EXPECT_EQ(find_cover_fault(slices, {3 * k, 3 * k}), "");
  slices.back() = slices[1];
  slices.back().box[0].begin = k;
  slices.back().elements.end = k;
  EXPECT_EQ(find_cover_fault(slices, {3 * k, 3 * k}), "two boxes overlap");
}

TEST(TensorSlice, FaultsNameTheRuleAndTheValues) {
  EXPECT_EQ(find_fault(slice_of_elements({4, 6}, 0, 25), {4, 6}), "elements [0, 25) of a box that has 24");
  EXPECT_EQ(find_fault({{{0, 4}, {2, 7}}, {0, 1}}, {4, 6}), "indices [2, 7) of dimension 1, which has 6");
  EXPECT_EQ(find_fault({{{0, 4}}, {0, 1}}, {4, 6}), "a box of 1 dimensions in a tensor of 2");
}

}  // namespace
}  // namespace herd
