// Runs whose ranks push to parameter servers train as those that all-reduce: the same bits where sums have the same
// order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/sample.h"
#include "trained_difference.h"

namespace herd::train {
namespace {

spec::RunFile run_with(const std::string& sync, const std::string& optimizer = "") {
  return tiny_run("clip = 0\n" + optimizer + "[strategy]\nsync = \"" + sync + "\"\n");
}

// Servers add in the order of ranks. Of two terms there is one order. How many ranks serve changes no bit.
TEST(ServerTraining, EqualsAllReduce_WithOneToThreeServers) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const int steps = ranks == 2 ? 30 : 6;
    const Trained reduced = train_in_threads(run_with("all_reduce"), ranks, steps);
    std::optional<Trained> first;
    for (int servers = 1; servers <= std::min(ranks, 3); ++servers) {
      spec::RunFile run = run_with("server");
      run.strategy.servers = servers;
      const Trained served = train_in_threads(run, ranks, steps);
      EXPECT_LE(most_apart(served, reduced), ranks <= 2 ? 0 : 2e-6) << ranks << " ranks, " << servers << " servers";
      EXPECT_LT(served.losses.back(), served.losses.front());
      if (!first) first = served;
      EXPECT_EQ(most_apart(served, *first), 0) << ranks << " ranks, " << servers << " servers";
    }
  }
}

// With HERD_FULL_TESTS=1 on the text that scripts/train tokenizes, 50 steps of every number of workers and servers;
// else a few steps of a shallower model on random tokens.
TEST(ServerTraining, EqualsAllReduce_OnTheModelOfScriptsTrain) {
  const bool full = one_in(2, 2) == 1;
  const std::filesystem::path source = std::getenv("HERD_SOURCE_DIR"), text = source / "data/kjv";
  std::vector<std::string> keys = {"optimizer.clip=0", "train.micro_batch=4"};
  if (full && !std::filesystem::exists(text)) GTEST_SKIP() << "no " << text.string() << ", which scripts/train makes";
  if (full)
    keys.push_back("data.path=" + text.string());
  else
    keys.insert(keys.end(), {"data.kind=random", "model.layers=1", "model.vocab=512", "model.context=32"});
  const spec::RunFile run = spec::parse_run_file((source / "examples/gpt_kjv.toml").string(), keys);
  const int steps = full ? 50 : 3;
  for (int workers = full ? 1 : 3; workers <= (full ? 4 : 3); ++workers) {
    const Trained reduced = train_in_threads(run, workers, steps);
    for (int servers = full ? 1 : 2; servers <= (full ? 3 : 2); ++servers) {
      for (const bool dedicated : {false, true}) {
        if (!dedicated && servers > workers) continue;
        spec::RunFile with_servers = run;
        with_servers.strategy.sync = "server";
        (dedicated ? with_servers.strategy.dedicated_servers : with_servers.strategy.servers) = servers;
        const double apart = most_apart(train_in_threads(with_servers, workers, steps), reduced);
        const std::string what = std::to_string(workers) + " workers, " + std::to_string(servers) +
                                 (dedicated ? " dedicated servers" : " servers");
        EXPECT_LE(apart, workers <= 2 ? 0 : 2e-6) << what;
        if (full) std::printf("%s: losses %.2g apart at most\n", what.c_str(), apart), std::fflush(stdout);
      }
    }
  }
}

TEST(ServerTraining, IsSynchronous_WithAStalenessOf0) {
  spec::RunFile run = run_with("server_async");
  run.strategy.staleness = 0;
  EXPECT_EQ(most_apart(train_in_threads(run, 3, 6), train_in_threads(run_with("server"), 3, 6)), 0);
}

// Sizes that servers share unevenly; batches that ranks do.
TEST(ServerTraining, EqualsOneRank_AtAwkwardSizes) {
  spec::RunFile run = run_with("server");
  run.model.width = 12, run.model.heads = 3, run.model.head_width = 4, run.model.ffn = 37, run.model.vocab = 101;
  run.model.kv_heads = 3, run.model.layers = 3;
  run.train.micro_batch = 1, run.train.batch = 5;
  const Trained one = train_in_threads(run, 1, 6);
  for (const int servers : {1, 2, 3}) {
    run.strategy.servers = servers;
    EXPECT_LE(most_apart(train_in_threads(run, 3, 6), one), 2e-6) << servers << " servers";
  }
}

// Of M gradient bytes a worker sends M and gets M, and each of k servers gets and sends n * M/k (BytePS, OSDI 2020);
// what a rank gives to itself moves nothing.
TEST(ServerTraining, SendsTheBytesOfItsEquation) {
  spec::RunFile run = run_with("server");
  run.model.width = 64, run.model.heads = 4, run.model.head_width = 16;
  run.health.check_finite = false;
  const spec::ModelTable table = spec::program_table(run, 1);
  double whole = 0;
  for (size_t g = 0; g < table.groups.size(); ++g)
    whole += 4.0 * static_cast<double>(table.group_elements(static_cast<int>(g)));
  for (const auto& [ranks, servers] : {std::pair{2, 1}, {2, 2}, {3, 1}, {3, 2}, {4, 3}}) {
    run.strategy.servers = servers;
    const std::vector<int64_t> sent = train_in_threads(run, ranks, 3).sent;
    for (int rank = 0; rank < ranks; ++rank) {
      const double share = rank < servers ? whole / servers : 0, expected = whole - share + (ranks - 1) * share;
      EXPECT_NEAR(static_cast<double>(sent[static_cast<size_t>(rank)]), expected, 0.02 * expected + 4096 * 4)
          << "rank " << rank << " of " << ranks << ", " << servers << " servers";
    }
  }
}

TEST(ServerTraining, EqualsAllReduce_WithEveryOptimizerAndRecompute) {
  for (const char* more :
       {"kind = \"sgd\"\nmomentum = 0.9\n", "kind = \"sgd\"\nmomentum = 0\n", "weight_decay = 0\n"}) {
    spec::RunFile served = run_with("server", more), reduced = run_with("all_reduce", more);
    served.strategy.recompute = reduced.strategy.recompute = "full";
    EXPECT_EQ(most_apart(train_in_threads(served, 2, 8), train_in_threads(reduced, 2, 8)), 0) << more;
  }
}

TEST(ServerTraining, FreezesTheSecondMomentAsAnAllReduceDoes) {
  const std::string frozen = "freeze_step = 3\n";
  const Trained served = train_in_threads(run_with("server", frozen), 2, 6);
  EXPECT_EQ(most_apart(served, train_in_threads(run_with("all_reduce", frozen), 2, 6)), 0);
  const Trained never = train_in_threads(run_with("server"), 2, 6);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(served.losses[i] == never.losses[i], i < 4) << "step " << i;
}

// Where each push of n ranks is an update, a step has n of them.
TEST(ServerTraining, CountsTheUpdatesOfAllRanksUntilItsFreezeStep) {
  for (const auto& [sync, updates] : {std::pair("server", 1), {"server_async", 3}}) {
    spec::RunFile run = run_with(sync, "freeze_step = 4\n");
    if (updates > 1) run.strategy.staleness = 2;
    const spec::Layout layout = strategies::trainable_layout(run, 3);
    const spec::ModelTable table = spec::program_table(run, layout.micro_batch);
    const auto step = strategies::compile_and_verify(run, table, layout)[0];
    const auto groups = family_source()->make(run, table, step, c10::kCPU).groups;
    const runtime::ServedOptions options = served_options(run, table, layout, groups, {});
    EXPECT_EQ(std::get<kernels::AdamWHyper>(options.optimizer).freeze_step, 4 * updates) << sync;
  }
}

TEST(ServerTraining, StopsAtAGradientThatIsNotFinite) {
  spec::RunFile run = run_with("server");
  run.optimizer.lr = 1e30;
  EXPECT_ERROR(train_in_threads(run, 2, 8), Code::kBadConfig, "is not finite on rank", "fix: lower optimizer.lr");
}

}  // namespace
}  // namespace herd::train
