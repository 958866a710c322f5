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

TEST(KeyTable, TellsModelsApartByItsFingerprint) {
  const auto fingerprint = [](std::vector<Key> keys) { return KeyTable(std::move(keys)).fingerprint(); };
  EXPECT_EQ(fingerprint({{.elements = 4}, {.elements = 6}}), fingerprint({{.elements = 4}, {.elements = 6}}));
  EXPECT_NE(fingerprint({{.elements = 4}, {.elements = 6}}), fingerprint({{.elements = 6}, {.elements = 4}}));
  EXPECT_NE(fingerprint({{.elements = 4}, {.elements = 6}}), fingerprint({{.elements = 10}}));
  EXPECT_NE(fingerprint({{.elements = 4, .row_elements = 2}}), fingerprint({{.elements = 4}}));
}

// The pieces of a key follow each other, so each element has one server.
TEST(KeyTable, SharesDifferByLessThanTwoUnits_AndRowsAreWhole) {
  const std::vector<Key> sizes = {{.elements = 1},    {.elements = 1000},
                                  {.elements = 1025}, {.elements = 96 * 4096, .row_elements = 96},
                                  {.elements = 7},    {.elements = 50000}};
  const KeyTable keys(sizes);
  for (int num_servers : {1, 2, 3, 4, 7, 16, 17}) {
    std::vector<int64_t> held(static_cast<size_t>(num_servers));
    for (int64_t index = 0; index < keys.size(); ++index) {
      int64_t next = 0;
      for (int server = 0; server < num_servers; ++server) {
        const auto range = keys.piece(index, server, num_servers);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), 0);
        EXPECT_EQ(range.begin % sizes[static_cast<size_t>(index)].row_elements, 0);
        const int64_t elements = keys.at(index).elements;
        EXPECT_TRUE(elements > 1024 || range.size() == 0 || range.size() == elements);
        next = range.end;
        held[static_cast<size_t>(server)] += range.size();
      }
      EXPECT_EQ(next, keys.at(index).elements);
    }
    const auto [least, most] = std::minmax_element(held.begin(), held.end());
    EXPECT_LT(*most - *least, 2 * 1024) << num_servers << " servers";
  }
}

TEST(KeyTable, SharesOneHundredThousandKeys) {
  const KeyTable keys(std::vector<Key>(100'000, {.elements = 100}));
  int64_t total = 0;
  for (int64_t index = 0; index < keys.size(); ++index) total += keys.piece(index, 1, 3).size();
  EXPECT_NEAR(static_cast<double>(total), 1e7 / 3, 200);
}

}  // namespace
}  // namespace herd
