#include "herd/train/shared_folder.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "herd/base/host_name.h"
#include "herd/storage/file_kind.h"
#include "herd/train/shared_error.h"
#include "tests/support/as_nobody.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// What each rank throws, with its own idea of the folder; empty for nothing.
std::vector<std::string> prove(const std::vector<fs::path>& folders, const std::function<void(Rank)>& before = {}) {
  MemoryStore store;
  std::vector<std::string> thrown(folders.size());
  std::vector<std::thread> ranks;
  for (size_t r = 0; r < folders.size(); ++r) {
    ranks.emplace_back([&, r] {
      StorePeers peers(store, static_cast<Rank>(r), static_cast<int>(folders.size()), "folder", 20s);
      if (before) before(static_cast<Rank>(r));
      try {
        prove_shared_folder(folders[r], peers, 50ms);
      } catch (const SharedError& error) {
        thrown[r] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return thrown;
}

TEST(SharedFolder, RankZeroSeesEveryRank_AndNothingStays) {
  TemporaryFolder folder;
  write_text(folder / "probe-00ff-3", "");  // of a start that was killed
  write_text(folder / "mine", "");
  for (const size_t ranks : {2, 5, 1}) {
    for (const std::string& error : prove(std::vector<fs::path>(ranks, folder.path()))) EXPECT_EQ(error, "");
  }
  EXPECT_EQ(entries_of(folder.path()), std::vector<fs::path>{folder / "mine"});
}

TEST(SharedFolder, AFolderOfAnotherHostIsAnErrorOnAllRanks_NamingRanksHostsAndFolder) {
  TemporaryFolder here, there;
  const auto errors = prove({here.path(), here.path(), there.path(), there.path()});
  for (const std::string& error : errors) {
    EXPECT_EQ(error, "kBadConfig: all ranks write into one folder, " + here.path().string() + ", but rank 0 on host " +
                         host_name() + " sees no file there of ranks 2, 3 on host " + host_name() +
                         "\n  fix: log.dir on a file system that all hosts have at the same path, which "
                         "every rank may write");
  }
  EXPECT_TRUE(entries_of(here.path()).empty());
  EXPECT_TRUE(entries_of(there.path()).empty());
}

TEST(SharedFolder, ARankThatMayNotWriteIsNamedWithItsReason) {
  TemporaryFolder here;
  for (const std::string& error : prove({here.path(), here / "nowhere"}))
    EXPECT_NE(error.find("of rank 1 on host " + host_name() + " (rank 1: No such file or directory)"), error.npos)
        << error;
  fs::permissions(here.path(), fs::perms(0755));
  const auto errors = prove({here.path(), here.path(), here.path()}, [](Rank rank) {
    static thread_local std::unique_ptr<AsNobody> nobody;
    if (rank == 2) nobody = std::make_unique<AsNobody>();
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("(rank 2: Permission denied)"), error.npos) << error;
  EXPECT_TRUE(entries_of(here.path()).empty());
}

}  // namespace
}  // namespace herd::train
