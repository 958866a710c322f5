#include "herd/base/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace herd {
namespace {

int after(const int& key) { return key + 1; }

TEST(ReadAhead, ReadsOnAThreadOfItsOwnBeforeItIsAsked) {
  std::atomic<int> reads{0};
  std::atomic<bool> elsewhere{true};
  const std::thread::id caller = std::this_thread::get_id();
  ReadAhead<int, int> values(
      [&](const int& key) {
        elsewhere = elsewhere && std::this_thread::get_id() != caller;
        ++reads;
        return 10 * key;
      },
      after, 2);
  EXPECT_EQ(values.take(3), 30);
  while (reads < 3) std::this_thread::yield();  // 4 and 5, which nobody has asked for
  EXPECT_EQ(values.take(4), 40);
  EXPECT_EQ(values.take(5), 50);
  EXPECT_TRUE(elsewhere);
}

TEST(ReadAhead, BeginsAnewAtAnotherKey) {
  ReadAhead<int, int> values([](const int& key) { return key; }, after, 3);
  for (const int key : {0, 1, 7, 8, 2, 2, 3}) EXPECT_EQ(values.take(key), key);
}

TEST(ReadAhead, ThrowsWhatItsFunctionThrew_WhereThatValueIsTaken) {
  ReadAhead<int, int> values(
      [](const int& key) {
        if (key == 2) throw std::runtime_error("no sample 2");
        return key;
      },
      after, 4);
  EXPECT_EQ(values.take(1), 1);
  EXPECT_THROW(values.take(2), std::runtime_error);
  EXPECT_EQ(values.take(3), 3);
}

TEST(ReadAhead, EndsWhileValuesWait_AndBeforeAnyIsTaken) {
  {
    const ReadAhead<int, int> never([](const int& key) { return key; }, after, 1);
  }
  ReadAhead<int, std::vector<int>> values([](const int& key) { return std::vector<int>(8, key); }, after, 8);
  EXPECT_EQ(values.take(0).size(), 8U);
}

}  // namespace
}  // namespace herd
