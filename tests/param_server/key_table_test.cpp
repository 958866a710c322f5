#include "herd/param_server/key_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/expect_error.h"

namespace herd {
namespace {

TEST(KeyTable, RefusesKeysWithoutElementsOrWholeRows) {
  EXPECT_ERROR(KeyTable{{.elements = 0}}, Code::kBadConfig, "key 0", "0 elements", "fix:");
  EXPECT_ERROR((KeyTable{{.elements = 1}, {.elements = 10, .row_elements = 4}}), Code::kBadConfig, "key 1",
               "rows of 4");
  const KeyTable keys{{.elements = 8}};
  EXPECT_ERROR(keys.at(1), Code::kBadConfig, "key 1 is unknown", "keys 0 to 0");
  EXPECT_ERROR(keys.at(-1), Code::kBadConfig, "key -1 is unknown");
}

TEST(KeyTable, RefusesExactElementsThatAreNone_AndBlocksWithoutElements) {
  const kernels::CodecSettings int8{.kind = kernels::CodecKind::kInt8};
  for (const std::vector<kernels::ElementRange>& exact :
       {std::vector<kernels::ElementRange>{{0, 9}}, {{-1, 2}}, {{4, 6}, {5, 7}}, {{4, 6}, {0, 2}}, {{3, 2}}})
    EXPECT_ERROR((KeyTable{{.elements = 8, .codec = int8, .exact = exact}}), Code::kBadConfig, "key 0", "exact",
                 "fix:");
  const KeyTable keys{{.elements = 8, .codec = int8, .exact = {{0, 2}, {2, 3}, {7, 8}}}};
  EXPECT_EQ(keys.size(), 1);
  kernels::CodecSettings none = int8;
  none.block = 0;
  EXPECT_ERROR((KeyTable{{.elements = 8, .codec = none}}), Code::kBadConfig, "blocks of 0");
}

TEST(KeyTable, TellsModelsApartByItsFingerprint) {
  const auto fingerprint = [](std::vector<Key> keys) { return KeyTable(std::move(keys)).fingerprint(); };
  EXPECT_EQ(fingerprint({{.elements = 4}, {.elements = 6}}), fingerprint({{.elements = 4}, {.elements = 6}}));
  EXPECT_NE(fingerprint({{.elements = 4}, {.elements = 6}}), fingerprint({{.elements = 6}, {.elements = 4}}));
  EXPECT_NE(fingerprint({{.elements = 4}, {.elements = 6}}), fingerprint({{.elements = 10}}));
  EXPECT_NE(fingerprint({{.elements = 4, .row_elements = 2}}), fingerprint({{.elements = 4}}));
}

// Returns how many elements each server holds. The pieces of a key follow each other, so each element has one server.
std::vector<int64_t> held_by_servers(const KeyTable& keys, int num_servers) {
  std::vector<int64_t> held(static_cast<size_t>(num_servers));
  for (int64_t index = 0; index < keys.size(); ++index) {
    const Key& key = keys.at(index);
    int64_t next = 0, pieces = 0;
    for (int server = 0; server < num_servers; ++server) {
      const auto range = keys.piece(index, server, num_servers);
      EXPECT_EQ(range.begin % key.row_elements, 0);
      if (range.size() > 0) {
        EXPECT_EQ(range.begin, next);
      }
      next += range.size();
      pieces += range.size() > 0;
      held[static_cast<size_t>(server)] += range.size();
    }
    EXPECT_EQ(next, key.elements);
    EXPECT_TRUE(key.elements >= 1024 * num_servers || pieces == 1);
  }
  return held;
}

std::vector<Key> uneven_keys() {
  return {{.elements = 1}, {.elements = 1000},  {.elements = 1025},   {.elements = 96 * 4096, .row_elements = 96},
          {.elements = 7}, {.elements = 50000}, {.elements = 1000000}};
}

TEST(KeyTable, CutsLargeTensorsOverAllServers_AndLeavesRowsWhole) {
  const KeyTable keys(uneven_keys());
  for (int num_servers : {1, 2, 3, 4, 7, 16, 17}) {
    const std::vector<int64_t> held = held_by_servers(keys, num_servers);
    const auto [least, most] = std::minmax_element(held.begin(), held.end());
    EXPECT_LT(*most - *least, 96 + 3 + 1024 * 2) << num_servers << " servers";
    for (int server = 0; server < num_servers; ++server)
      EXPECT_NEAR(static_cast<double>(keys.piece(6, server, num_servers).size()), 1e6 / num_servers, 1);
  }
}

TEST(KeyTable, CutsByShares_AndTellsTablesOfOtherSharesApart) {
  const KeyTable keys(uneven_keys(), {1, 0, 3});
  const std::vector<int64_t> held = held_by_servers(keys, 3);
  const auto total = static_cast<double>(keys.total_elements());
  EXPECT_NEAR(static_cast<double>(held[0]), total / 4, 2200);
  EXPECT_EQ(held[1], 0);
  EXPECT_NEAR(static_cast<double>(held[2]), total * 3 / 4, 2200);
  EXPECT_NE(keys.fingerprint(), KeyTable(uneven_keys()).fingerprint());
  EXPECT_NE(keys.fingerprint(), KeyTable(uneven_keys(), {1, 1, 3}).fingerprint());
  EXPECT_ERROR(keys.piece(0, 0, 2), Code::kBadConfig, "shares of 3 servers, but there are 2");
  EXPECT_ERROR(KeyTable(uneven_keys(), {1, -1}), Code::kBadConfig, "share is -1");
  EXPECT_ERROR(KeyTable(uneven_keys(), {0, 0}), Code::kBadConfig, "all servers are 0");
}

TEST(KeyTable, SharesOneHundredThousandKeys) {
  const KeyTable keys(std::vector<Key>(100'000, {.elements = 100}));
  int64_t total = 0;
  for (int64_t index = 0; index < keys.size(); ++index) total += keys.piece(index, 1, 3).size();
  EXPECT_NEAR(static_cast<double>(total), 1e7 / 3, 200);
}

}  // namespace
}  // namespace herd
