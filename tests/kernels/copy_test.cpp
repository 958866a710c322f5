#include "herd/kernels/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace herd::kernels {
namespace {

TEST(Copy, FillsEveryTargetAndNothingAround_AtAnyAlignmentAndSize) {
  constexpr int kMost = 140000;  // several blocks, however it is stored
  std::vector<uint8_t> source(kMost + 1000);
  std::iota(source.begin(), source.end(), uint8_t{1});
  for (WriteKind store : {WriteKind::kCached, WriteKind::kStream, WriteKind::kTakeOver}) {
    for (int64_t bytes : {0, 1, 63, 64, 65, 255, 256, 257, 1000, 1500, 40000, kMost}) {
      for (size_t shift = 0; shift < 70; shift += 23) {
        std::vector<std::vector<uint8_t>> memory(3, std::vector<uint8_t>(source.size(), 0));
        std::vector<void*> targets;
        for (size_t k = 0; k < memory.size(); ++k) targets.push_back(memory[k].data() + 8 + shift + k);
        copy(targets, source.data() + shift, bytes, store);
        copy(targets[0], source.data() + shift, bytes, store);
        for (size_t k = 0; k < memory.size(); ++k) {
          const auto* target = static_cast<uint8_t*>(targets[k]);
          EXPECT_TRUE(std::equal(target, target + bytes, source.data() + shift));
          EXPECT_EQ(std::accumulate(memory[k].begin(), memory[k].end(), 0),
                    std::accumulate(source.begin() + static_cast<ptrdiff_t>(shift),
                                    source.begin() + static_cast<ptrdiff_t>(shift) + bytes, 0));
        }
      }
    }
  }
}

TEST(Copy, OntoItselfChangesNothing) {
  std::vector<uint8_t> memory{1, 2, 3};
  for (WriteKind store : {WriteKind::kCached, WriteKind::kStream, WriteKind::kTakeOver}) {
    copy(memory.data(), memory.data(), 3, store);
  }
  EXPECT_EQ(memory, (std::vector<uint8_t>{1, 2, 3}));
}

}  // namespace
}  // namespace herd::kernels
