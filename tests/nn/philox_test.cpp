#include "herd/nn/philox.h"

#include <gtest/gtest.h>

namespace herd::nn {
namespace {

// Known answers published with the generator (Random123 kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, MixSeparatesNeighbours) {
  EXPECT_NE(mix(1, 2), mix(2, 1));
  EXPECT_NE(mix(0, 0), mix(0, 1));
  EXPECT_NE(hash_name("blocks.1.bias"), hash_name("blocks.2.bias"));
}

}  // namespace
}  // namespace herd::nn
