#include "herd/comm/world_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "herd/base/error.h"
#include "herd/comm/context.h"
#include "herd/comm/inproc_world.h"
#include "herd/topology/probe.h"

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
      share_facts(Access::group(comm), comm.rank() == 0 ? file : "", facts);
      EXPECT_EQ(facts.tuning.sizes.size(), sizes) << "rank " << comm.rank();
      EXPECT_GE(facts.cores, 1);
    });
  }

  std::filesystem::path folder_;
};

TEST_F(WorldFactsTest, AllRanksChooseByTheFileOfRankZero) {
  const std::string file =
      file_of("herd-tuning 1\nmachine " + machine_name() + "\nall_reduce 3 ordinary 4096 butterfly 1.5\n");
  expect_on_all(file, 1);
  run_inproc(3, [&](Communicator& comm) {
    share_facts(Access::group(comm), comm.rank() == 0 ? file : "", *Access::context(comm).facts);
    std::vector<float> x(1024, 1);
    comm.all_reduce(x);
    EXPECT_EQ(Access::last_algorithm(comm), "butterfly");
    EXPECT_EQ(x[1023], 3);
  });
}

TEST_F(WorldFactsTest, AFileOfAnotherMachineIsLeftOut) {
  expect_on_all(file_of("herd-tuning 1\nmachine an abacus, 10 beads\nall_reduce 3 ordinary 4096 butterfly 1.5\n"), 0);
}

TEST_F(WorldFactsTest, AFileThatCannotBeReadIsTheSameErrorOnEveryRank) {
  const auto refusal = [](const std::string& file, Code code) {
    std::string said;
    std::atomic<int> errors{0};
    run_inproc(3, [&](Communicator& comm) {
      WorldFacts facts;
      try {
        share_facts(Access::group(comm), comm.rank() == 0 ? file : "", facts);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        if (comm.rank() == 2) said = error.message();
        ++errors;
      }
    });
    EXPECT_EQ(errors, 3);
    return said;
  };
  EXPECT_THAT(refusal(file_of("herd-tuning 1\nall_reduce 3 ordinary 4096 butterfly fast\n"), Code::kCorruptFile),
              HasSubstr("line 2: a number >= 0 stands here"));
  EXPECT_THAT(refusal(folder_ / "nothing", Code::kBadConfig), HasSubstr("fix: herd bench OP --tune"));
}

}  // namespace
}  // namespace herd::comm
