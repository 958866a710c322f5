#include "herd/base/buffer.h"

#include <gtest/gtest.h>

#include <vector>

namespace herd {
namespace {

TEST(Buffer, SpansAndVectorsBecomeTypedBuffers) {
  std::vector<int64_t> numbers(5);
  const Buffer whole = to_buffer(numbers, BufferTag{});
  EXPECT_EQ(whole.ptr, numbers.data());
  EXPECT_EQ(whole.count, 5);
  EXPECT_EQ(whole.dtype, DType::kI64);
  EXPECT_EQ(whole.bytes(), 40);
  auto part = std::span<int64_t>(numbers).subspan(1, 2);
  EXPECT_EQ(to_buffer(part, BufferTag{}).count, 2);
}

}  // namespace
}  // namespace herd
