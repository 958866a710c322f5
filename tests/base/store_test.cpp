#include "herd/base/store.h"

#include <gtest/gtest.h>

#include <thread>

#include "herd/base/error.h"

namespace herd {
namespace {

using namespace std::chrono_literals;

TEST(MemoryStore, GetWaitsForAnotherThreadsSet) {
  MemoryStore store;
  std::thread setter([&] {
    std::this_thread::sleep_for(5ms);
    store.set("key", "value");
  });
  EXPECT_EQ(store.get("key", std::chrono::steady_clock::now() + 5s), "value");
  setter.join();
}

TEST(MemoryStore, GetNamesTheMissingKeyWhenTheDeadlinePasses) {
  MemoryStore store;
  try {
    store.get("absent", std::chrono::steady_clock::now() + 5ms);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_NE(error.message().find("\"absent\""), std::string::npos);
  }
}

TEST(MemoryStore, AddCountsFromZero) {
  MemoryStore store;
  EXPECT_EQ(store.add("n", 2), 2);
  EXPECT_EQ(store.add("n", -5), -3);
}

}  // namespace
}  // namespace herd
