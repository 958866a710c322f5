#include "herd/topology/mesh.h"

#include <gmock/gmock.h>

namespace herd {
namespace {

using testing::ElementsAre;

Mesh pp3_dp2_fsdp2() {
  Mesh mesh{.world_size = 12};
  mesh.axes = {{"pp", {{4, 3}}}, {"dp", {{2, 2}}}, {"fsdp", {{1, 2}}}};
  mesh.axes.push_back(product(mesh.axes[1], mesh.axes[2]));
  mesh.axes.push_back(restricted(mesh.axes[0], {0, 2}));
  return mesh;
}

TEST(Mesh, NamesTheRanksOfAGroup_ByTheirIndex) {
  const Mesh mesh = pp3_dp2_fsdp2();
  EXPECT_THAT(mesh.ranks(mesh.find("pp"), 6), ElementsAre(2, 6, 10));
  EXPECT_THAT(mesh.ranks(mesh.find("dp"), 7), ElementsAre(5, 7));
  EXPECT_THAT(mesh.ranks(mesh.find("fsdp"), 7), ElementsAre(6, 7));
  EXPECT_THAT(mesh.ranks(mesh.find("dp*fsdp"), 7), ElementsAre(4, 5, 6, 7));
  for (size_t axis = 0; axis + 1 < mesh.axes.size(); ++axis) {
    for (int rank = 0; rank < mesh.world_size; ++rank) {
      const int a = static_cast<int>(axis);
      EXPECT_EQ(mesh.peer(a, rank, mesh.index(a, rank)), rank) << mesh.axes[axis].name;
    }
  }
}

TEST(Mesh, LeavesOutWhoIsNoMember) {
  const Mesh mesh = pp3_dp2_fsdp2();
  const int ends = mesh.find("pp{0,2}");
  EXPECT_EQ(mesh.size(ends), 2);
  EXPECT_EQ(mesh.index(ends, 1), 0);
  EXPECT_EQ(mesh.index(ends, 5), -1);
  EXPECT_EQ(mesh.index(ends, 9), 1);
  EXPECT_THAT(mesh.ranks(ends, 9), ElementsAre(1, 9));
}

TEST(Mesh, HasGroupsOfOneRank_WhereThereIsNoAxis) {
  const Mesh mesh = pp3_dp2_fsdp2();
  EXPECT_EQ(mesh.find("tp"), kNoAxis);
  EXPECT_EQ(mesh.size(kNoAxis), 1);
  EXPECT_THAT(mesh.ranks(kNoAxis, 5), ElementsAre(5));
}

TEST(Mesh, SaysWhichAxisDividesWhat_AsFarAsAnyDoes) {
  Mesh mesh{.world_size = 8};
  mesh.axes = {{"dp", {{4, 2}}, {}, Divided::kSamples}, {"cp", {{2, 2}}, {}, Divided::kTokens}, {"tp", {{1, 2}}}};
  EXPECT_EQ(mesh.dividing(Divided::kSamples), 0);
  EXPECT_EQ(mesh.dividing(Divided::kTokens), 1);
  EXPECT_EQ(mesh.dividing(Divided::kLayers), kNoAxis);
  EXPECT_EQ(mesh.dividing(Divided::kTokens | Divided::kStages), 1);
  EXPECT_EQ(mesh.dividing(Divided::kSamples | Divided::kTokens), kNoAxis) << "no axis has the ranks of both";
  mesh.axes.push_back(product(mesh.axes[0], mesh.axes[1]));
  EXPECT_EQ(mesh.axes.back().divides, Divided::kNothing);
  mesh.axes.back().divides = Divided::kSamples | Divided::kTokens;
  EXPECT_EQ(mesh.dividing(Divided::kSamples | Divided::kTokens), 3);
  EXPECT_EQ(mesh.dividing(Divided::kSamples), 0);
  EXPECT_EQ(restricted(mesh.axes[0], {1}).divides, Divided::kNothing);
}

// Nested products, in whichever order their factors stand over the ranks: every rank is in one place.
TEST(Mesh, CountsEveryPlaceOnce_OfAProductWhoseOuterFactorIsTheNearer) {
  Mesh mesh{.world_size = 12};
  mesh.axes = {{"a", {{1, 2}}}, {"b", {{2, 3}}}, {"c", {{6, 2}}}};
  mesh.axes.push_back(product(product(mesh.axes[0], mesh.axes[2]), mesh.axes[1]));
  std::vector<int> seen = mesh.ranks(3, 7);
  EXPECT_THAT(seen, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(std::vector<int>(seen.begin(), seen.begin() + 4), ElementsAre(0, 2, 4, 6));
}

}  // namespace
}  // namespace herd
