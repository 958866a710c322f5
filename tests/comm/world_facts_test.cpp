#include "herd/comm/world_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>

#include "herd/base/error.h"
#include "herd/collectives/choose.h"
#include "herd/comm/context.h"
#include "herd/comm/inproc_world.h"
#include "herd/topology/discover.h"
#include "herd/topology/topology_text.h"

namespace herd::comm {
namespace {

using testing::HasSubstr;

class WorldFactsTest : public testing::Test {
 protected:
  WorldFactsTest() {
    std::string name = (std::filesystem::temp_directory_path() / "herd-facts-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~WorldFactsTest() override { std::filesystem::remove_all(folder_); }

  std::string file_of(const std::string& text) const {
    std::ofstream(folder_ / "tuning") << text;
    return folder_ / "tuning";
  }
  // What three ranks hear, of which rank 0 alone has the file.
  static void expect_on_all(const std::string& file, size_t sizes) {
    run_inproc(3, [&](Communicator& comm) {
      WorldFacts facts;
      share_facts(CommunicatorTestAccess::group(comm), {.tuning_file = comm.rank() == 0 ? file : ""}, facts);
      EXPECT_EQ(facts.tuning.sizes.size(), sizes) << "rank " << comm.rank();
      EXPECT_GE(facts.host.cores, 1);
    });
  }

  std::filesystem::path folder_;
};

TEST_F(WorldFactsTest, AllRanksChooseByTheFileOfRankZero) {
  const std::string file =
      file_of("herd-tuning 1\nmachine " + machine_name() + "\nall_reduce 3 ordinary 4096 recursive_doubling 1.5\n");
  expect_on_all(file, 1);
  run_inproc(3, [&](Communicator& comm) {
    share_facts(CommunicatorTestAccess::group(comm), {.tuning_file = comm.rank() == 0 ? file : ""},
                *CommunicatorTestAccess::context(comm).facts);
    std::vector<float> x(1024, 1);
    comm.all_reduce(x);
    EXPECT_EQ(CommunicatorTestAccess::last_algorithm(comm), "recursive_doubling");
    EXPECT_EQ(x[1023], 3);
  });
}

TEST_F(WorldFactsTest, AFileOfAnotherMachineIsLeftOut) {
  expect_on_all(
      file_of("herd-tuning 1\nmachine an abacus, 10 beads\nall_reduce 3 ordinary 4096 recursive_doubling 1.5\n"), 0);
}

TEST_F(WorldFactsTest, AFileThatCannotBeReadIsTheSameErrorOnEveryRank) {
  const auto refusal = [](const std::string& file, Code code) {
    std::string said;
    std::atomic<int> errors{0};
    run_inproc(3, [&](Communicator& comm) {
      WorldFacts facts;
      try {
        share_facts(CommunicatorTestAccess::group(comm), {.tuning_file = comm.rank() == 0 ? file : ""}, facts);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        if (comm.rank() == 2) said = error.message();
        ++errors;
      }
    });
    EXPECT_EQ(errors, 3);
    return said;
  };
  EXPECT_THAT(
      refusal(file_of("herd-tuning 1\nall_reduce 3 ordinary 4096 recursive_doubling fast\n"), Code::kCorruptFile),
      HasSubstr("line 2: a number >= 0 stands here"));
  EXPECT_THAT(refusal(folder_ / "nothing", Code::kBadConfig), HasSubstr("fix: herd bench OP --tune"));
}

// All ranks of a world, each told the topology that rank 0 is given.
void on_topology(int num_ranks, const std::string& topology, const std::function<void(Communicator&)>& body) {
  run_inproc(num_ranks, [&](Communicator& comm) {
    share_facts(CommunicatorTestAccess::group(comm), {.topology = comm.rank() == 0 ? topology : ""},
                *CommunicatorTestAccess::context(comm).facts);
    body(comm);
  });
}

// Rank r gives r + k at element k; empty algorithm: what is chosen. Returns the algorithm that ran.
std::string expect_exact_sums(Communicator& comm, std::string_view algorithm, int64_t count = 1003) {
  const int n = comm.size();
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(comm.rank()) + static_cast<float>(k % 100);
  comm.all_reduce(x, {.algorithm = algorithm});
  int64_t wrong = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    wrong += x[k] != static_cast<float>(n * (n - 1) / 2 + n * static_cast<int>(k % 100));
  }
  EXPECT_EQ(wrong, 0) << algorithm << " on " << comm.topology();
  return CommunicatorTestAccess::last_algorithm(comm);
}

TEST_F(WorldFactsTest, RanksRunTheAlgorithmsOfTheTopologyThatIsGiven) {
  const std::string cube = file_of("herd-topology 1\nname cube\nhosts 8\nfabric torus 2 2 2\n");
  on_topology(8, cube, [](Communicator& comm) {
    EXPECT_EQ(expect_exact_sums(comm, "torus_3d"), "torus_3d");
    EXPECT_EQ(expect_exact_sums(comm, "torus_nd"), "torus_nd");
    CollectiveRequest request{.num_ranks = 8, .elements = 16384, .in_place = true, .same_host = true};
    const Topology topology = parse_topology(comm.topology());
    EXPECT_EQ(topology.name, "cube");
    EXPECT_EQ(expect_exact_sums(comm, "", request.elements), choose(request, topology).algorithm);
  });
  on_topology(8, "mesh:4x2", [](Communicator& comm) { EXPECT_EQ(expect_exact_sums(comm, "mesh_2d"), "mesh_2d"); });
  on_topology(8, "racks:2x2x2", [](Communicator& comm) {
    EXPECT_EQ(grid_of(parse_topology(comm.topology())), (std::vector<int>{2, 2, 2}));
    EXPECT_EQ(expect_exact_sums(comm, "hierarchical"), "hierarchical");
    EXPECT_EQ(expect_exact_sums(comm, "torus_3d"), "torus_3d");
  });
}

TEST_F(WorldFactsTest, AGroupHasItsPartOfTheTopology) {
  on_topology(8, "torus:2x2x2", [](Communicator& comm) {
    for (const int stride : {1, 2, 4}) {  // the axis along which the cube is cut in two
      Communicator half = comm.split(comm.rank() / stride % 2, comm.rank());
      EXPECT_EQ(parse_topology(half.topology()).axes, (std::vector<int>{2, 2}));
      EXPECT_EQ(expect_exact_sums(half, "torus_2d"), "torus_2d");
      EXPECT_EQ(expect_exact_sums(half, "mesh_2d"), "mesh_2d");
    }
    Communicator three = comm.split(comm.rank() < 3 ? 0 : -1, comm.rank());
    EXPECT_EQ(parse_topology(three.topology()).hosts.size(), comm.rank() < 3 ? 3u : 1u);
    if (comm.rank() < 3) expect_exact_sums(three, "");
  });
}

TEST_F(WorldFactsTest, ATopologyOfOtherRanksIsTheSameErrorOnEveryRank) {
  std::atomic<int> errors{0};
  run_inproc(3, [&](Communicator& comm) {
    WorldFacts facts;
    try {
      share_facts(CommunicatorTestAccess::group(comm), {.topology = comm.rank() == 0 ? "torus:2x2" : ""}, facts);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kBadConfig);
      EXPECT_THAT(error.message(), HasSubstr("has 4 ranks, but the job has 3"));
      ++errors;
    }
  });
  EXPECT_EQ(errors, 3);
}

TEST_F(WorldFactsTest, TuningAndTopologyAreToldTogether) {
  const std::string file = file_of("herd-tuning 1\nall_reduce 3 ordinary 4096 recursive_doubling 1.5\n");
  run_inproc(3, [&](Communicator& comm) {
    WorldFacts facts;
    GivenFacts given;
    if (comm.rank() == 0) given = {file, "torus:3"};
    share_facts(CommunicatorTestAccess::group(comm), given, facts);
    EXPECT_EQ(facts.tuning.sizes.size(), 1u);
    ASSERT_TRUE(facts.topology);
    EXPECT_EQ(facts.topology->axes, (std::vector<int>{3}));
  });
}

}  // namespace
}  // namespace herd::comm
