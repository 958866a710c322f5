#include "herd/kernels/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "tests/kernels/codec_inputs.h"

namespace herd::kernels {
namespace {

struct Top {
  std::vector<float> values;
  std::vector<uint32_t> indices;
};

Top by_sorting(const std::vector<float>& values, int64_t k) {
  const auto key = [&](uint32_t i) { return std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu; };
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
  order.resize(static_cast<size_t>(k));
  std::sort(order.begin(), order.end());
  Top top{.values = {}, .indices = order};
  for (const uint32_t i : order) top.values.push_back(values[i]);
  return top;
}

template <class Select>
void expect_as_sorted(const Select& select, const std::vector<float>& values, int64_t k, const std::string& name) {
  const Top expected = by_sorting(values, k);
  Top top{.values = std::vector<float>(static_cast<size_t>(k)),
          .indices = std::vector<uint32_t>(static_cast<size_t>(k))};
  select(values.data(), static_cast<int64_t>(values.size()), k, top.values.data(), top.indices.data());
  ASSERT_EQ(top.indices, expected.indices) << name << ", the first " << k << " of " << values.size();
  for (size_t i = 0; i < top.values.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(top.values[i]), std::bit_cast<uint32_t>(expected.values[i])) << name;
}

std::vector<CodecInput> inputs_with_ties(int64_t count) {
  std::vector<CodecInput> inputs = codec_inputs(count);
  std::vector<float> ties = normal_values(count), bad = ties;
  for (float& x : ties) x = std::round(x);
  for (size_t i = 0; i < bad.size(); i += 5) bad[i] = i % 2 == 0 ? INFINITY : -NAN;
  inputs.push_back({"ties", ties});
  inputs.push_back({"not finite", bad});
  return inputs;
}

TEST(TopK, IsWhatASortGives_WithTheLowestIndicesOfTies) {
  for (const int64_t count : {0, 1, 2, 7, 8, 9, 16, 17, 33, 1000, 1001}) {
    for (const CodecInput& input : inputs_with_ties(count)) {
      for (const int64_t k : {int64_t{0}, int64_t{1}, count / 10, count / 2, count - 1, count}) {
        if (k < 0 || k > count) continue;
        expect_as_sorted(select_top_k, input.values, k, input.name);
        expect_as_sorted(select_top_k_by_sample, input.values, k, input.name);
      }
    }
  }
}

// The sample decides nothing but the time: also where it misleads, as where all that is large stands between its
// places.
TEST(TopK, IsTheSameBySample) {
  const int64_t count = (1 << 17) + 1037;
  std::vector<CodecInput> inputs = inputs_with_ties(count);
  std::erase_if(inputs, [](const CodecInput& input) {
    return input.name != "heavy-tailed" && input.name != "constant" && input.name != "ties" &&
           input.name != "not finite";
  });
  std::vector<float> hidden(static_cast<size_t>(count), 1e-3f);
  for (size_t i = 0; i < 900; ++i) hidden[hidden.size() - 1 - i] = 1.0f + static_cast<float>(i);
  inputs.push_back({"large at the end", hidden});
  for (const CodecInput& input : inputs) {
    for (const int64_t k : {int64_t{13}, count / 100})
      expect_as_sorted(select_top_k_by_sample, input.values, k, input.name);
  }
}

}  // namespace
}  // namespace herd::kernels
