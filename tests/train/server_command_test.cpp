// Runs of herd train with parameter servers: their checkpoints hold the servers' states, and runs of any layout take
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <set>
#include <string>

#include "faulty_run.h"
#include "herd/storage/checkpoint_reader.h"
#include "layout_moves.h"
#include "tests/net/pair.h"
#include "tests/support/expect_within.h"

namespace herd::train {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kRun = run_to_move({"optimizer.lr=3e-4", "optimizer.clip=0"});
const std::string kServed = "strategy.sync=server";

void expect_same_losses(const std::vector<StepMetrics>& steps, const std::vector<StepMetrics>& expected,
                        double within) {
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(steps[i].loss, expected[i].loss, within * expected[i].loss) << "step " << i;
}

TEST(ServerCommand, ResumesToTheSameLosses_AtTheSameAndAtOtherLayouts) {
  RunFolder folder;
  ASSERT_EQ(folder.train("plain", 1, kRun).status, 0);
  const auto expected = metrics_of(folder.root / "plain");
  const std::pair<Layout, Layout> moves[] = {{{2, {kServed}}, {2, {kServed}}},
                                             {{3, {kServed, "strategy.servers=2"}}, {2, {"strategy.zero=2"}}},
                                             {{1}, {3, {kServed}}}};
  int index = 0;
  for (const auto& [first, second] : moves) {
    const std::string name = "move" + std::to_string(index++);
    const Ended begun = folder.train(name, first.ranks, with(kRun, first.overrides));
    ASSERT_EQ(begun.status, 0) << begun.output;
    const auto losses = metrics_of(folder.root / name);
    expect_same_losses(losses, expected, 2e-6);
    fs::remove_all(folder.root / name / "checkpoints" / checkpoint_folder_name(steps_to_move()));
    const Ended resumed = folder.train(name, second.ranks, with(kRun, second.overrides));
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_THAT(resumed.output, testing::HasSubstr("resumed from"));
    const bool same_layout = first.ranks == second.ranks && first.overrides == second.overrides;
    expect_same_losses(metrics_of(folder.root / name), losses, same_layout ? 0 : 2e-6);
  }
}

// Ranks that serve validate for all, and the others wait for them.
TEST(ServerCommand, ValidatesLongerThanItsDeadline_WhereRanksRunAhead) {
  RunFolder folder;
  const Ended ended = folder.train(
      "long", 3,
      {"optimizer.clip=0", "strategy.sync=server_async", "strategy.servers=1", "comm.deadline_s=2", "train.steps=4",
       "train.eval_every=2", "train.eval_batches=1000", "train.batch=6", "train.micro_batch=1", "checkpoint.every=2"});
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(metrics_of(folder.root / "long").size(), 4U);
}

TEST(Command, ThatEndsEndsTheWaitForItsOutput) {
  RunFolder folder;
  Command job({"/bin/sh", "-c", "echo step 1/"}, folder.root / "output");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(job.wait_for("step 2/", 20));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(job.wait_for("step 1/"));
  EXPECT_EQ(job.wait(), 0);
}

TEST(ServerCommand, SendsAsMuchAsItPredicts) {
  RunFolder folder;
  const std::vector<std::string> run = {"model.width=256",    "model.context=64", "model.layers=4",
                                        "model.vocab=2048",   "train.batch=4",    "train.steps=4",
                                        "train.eval_every=0", "optimizer.clip=0"};
  ASSERT_EQ(folder.train("plain", 2, run).status, 0);
  const Ended ended = folder.train("served", 2, with(run, {kServed}));
  ASSERT_EQ(ended.status, 0) << ended.output;
  // A server sends what the last step makes until the other rank has it, after this rank has counted the step.
  const auto steps = metrics_of(folder.root / "served");
  const auto sent = [&](const char* name) {
    double sum = 0;
    for (const StepMetrics& step : metrics_of(folder.root / name)) sum += static_cast<double>(step.bytes_sent);
    return sum;
  };
  EXPECT_LE(sent("served"), 1.01 * sent("plain"));
  EXPECT_GE(sent("served"), 0.95 * (1 - 1.0 / static_cast<double>(steps.size())) * sent("plain"));
  const StepMetrics& served = steps.back();
  const auto predicted = static_cast<double>(served.predicted_device_bytes_peak);
  EXPECT_NEAR(static_cast<double>(served.device_bytes_peak), predicted, 0.03 * predicted);
}

// Rank 0 serves, rank 2 only works. Either's death is named, and the run goes on from a checkpoint whose shards state
// how many updates they have seen.
TEST(ServerCommand, GoesOnFromACheckpoint_WhereAServerOrAWorkerIsKilledWhileRanksRunAhead) {
  RunFolder folder;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const int kills = std::getenv("HERD_FULL_TESTS") != nullptr ? 100 : 2;
  for (int index = 0; index < kills; ++index) {
    const int victim = index < 2 ? 2 * index : static_cast<int>(random() % 3);
    const std::string name = "killed" + std::to_string(index);
    auto words = folder.command(name, 3,
                                {"train.steps=3000", "train.eval_every=0", "checkpoint.every=3", "optimizer.clip=0",
                                 "strategy.sync=server_async", "strategy.staleness=2", "strategy.servers=1"});
    words.insert(words.end(), {"--max-restarts", "1"});
    Command job(words, folder.root / (name + ".output"));
    ASSERT_TRUE(job.wait_for("step 8/")) << job.output();
    const pid_t pid = Command::trainer_of_rank(victim, "log.name=" + name);
    ASSERT_GT(pid, 0);
    usleep(static_cast<useconds_t>(random() % 100'000));
    kill(pid, SIGKILL);
    ASSERT_TRUE(job.wait_for("starting again")) << job.output();
    const size_t before = job.output().find("starting again");
    size_t at = before;
    for (int step = 0; step < 4; ++step) {  // then each rank, at most two steps behind, has done one of its own
      ASSERT_TRUE(job.wait_for("/3000", 120, at)) << job.output();
      at = job.output().find("/3000", at) + 1;
    }
    kill(job.pid(), SIGTERM);
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(job.output().substr(0, before), HasSubstr("rank " + std::to_string(victim)));
    EXPECT_THAT(job.output().substr(before), HasSubstr("resumed from"));
    const CheckpointReader reader(resolve_checkpoint(folder.root / name));
    EXPECT_EQ(reader.manifest().notes.at("server updates"), std::to_string(3 * reader.manifest().step));
  }
}

// Ranks 0 and 1 train, rank 2 only serves, until the victim is killed; the run goes on from a checkpoint with the
// states of the server. Returns the time from the death until the others name it.
std::chrono::nanoseconds until_named(const RunFolder& folder, const std::string& name, int victim, useconds_t delay) {
  auto words = folder.command(name, 3,
                              {"train.steps=3000", "train.eval_every=0", "checkpoint.every=3", "optimizer.clip=0",
                               kServed, "strategy.dedicated_servers=1"});
  words.insert(words.end(), {"--max-restarts", "1"});
  Command job(words, folder.root / (name + ".output"));
  EXPECT_TRUE(job.wait_for("step 8/")) << job.output();
  const pid_t pid = Command::trainer_of_rank(victim, "log.name=" + name);
  EXPECT_GT(pid, 0) << job.output();
  if (pid <= 0) return {};
  usleep(delay);
  const size_t alive = job.output().size();
  kill(pid, SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  EXPECT_TRUE(job.wait_for("rank " + std::to_string(victim), 60, alive)) << job.output();
  const auto took = std::chrono::steady_clock::now() - killed;
  EXPECT_TRUE(job.wait_for("starting again")) << job.output();
  const size_t before = job.output().find("starting again");
  if (before == std::string::npos) return {};
  EXPECT_THAT(job.output().substr(alive, before - alive), HasSubstr("kPeerLost"));
  EXPECT_TRUE(job.wait_for("/3000", 120, before)) << job.output();
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output().substr(before), HasSubstr("resumed from"));
  CheckpointReader reader(resolve_checkpoint(folder.root / name));
  reader.verify();
  EXPECT_EQ(reader.manifest().notes.at("server updates"), std::to_string(reader.manifest().step));
  return took;
}

TEST(ServerCommand, GoesOnFromACheckpoint_WhereADedicatedServerOrARankThatTrainsIsKilled) {
  RunFolder folder;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const int kills = std::getenv("HERD_FULL_TESTS") != nullptr ? 60 : 2;
  int jobs = 0;
  for (int index = 0; index < kills; ++index) {
    expect_within(std::chrono::seconds(1), [&] {
      return until_named(folder, "dedicated" + std::to_string(jobs++), 2 - index % 3,
                         static_cast<useconds_t>(random() % 100'000));
    });
  }
}

// Dials a port as those do who have no token or another one, and gives back the connections that stay open.
std::vector<Descriptor> dial_as_strangers(int port) {
  std::vector<Descriptor> open;  // of those that say nothing, half of a handshake, or something else
  for (const std::string said : {"", "\x16", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01 noise that is no handshake"}) {
    open.push_back(testing_support::dial(port));
    pollfd connected = {open.back().fd, POLLOUT, 0};
    EXPECT_EQ(poll(&connected, 1, 5000), 1);
    if (!said.empty()) send(open.back().fd, said.data(), said.size(), MSG_NOSIGNAL);
  }
  const net::SecureContext other_token(std::string(net::SecureContext::kKeyBytes, 'k'));
  const auto thief = net::SecureSocket::connect(other_token, testing_support::dial(port), "rank 1");
  EXPECT_TRUE(testing_support::until([&] { return thief->shake_hands() || !thief->end_reason().empty(); }, [] {}));
  EXPECT_FALSE(thief->is_open()) << "another token opens nothing";
  return open;
}

// Strangers at the port of a rank that only serves, which it has until all ranks have connected: they are named and
// join nothing, and the run has the losses of one without them. While it trains, no rank has a port.
TEST(ServerCommand, GoesOnAmongStrangersAtADedicatedServer) {
  RunFolder folder;
  const std::vector<std::string> run = {
      "train.steps=12", "train.eval_every=0",          "checkpoint.every=-1", "optimizer.clip=0",
      kServed,          "strategy.dedicated_servers=1"};
  ASSERT_EQ(folder.train("alone", 3, run).status, 0);
  const fs::path go = folder.root / "go";
  auto words = folder.command("among", 3, run);
  words.insert(
      words.begin(),
      {"/usr/bin/env", "HERD_TRANSPORT=tcp", "HERD_NETWORK=lo", "HERD_HELD_RANK=1", "HERD_HELD_UNTIL=" + go.string(),
       "LD_PRELOAD=" + (fs::path(std::getenv("HERD_BINARY_DIR")) / "lib/libherd_held_connections.so").string()});
  Command job(words, folder.root / "among.output");
  pid_t server = -1;
  std::set<int> ports;
  ASSERT_TRUE(within(120, [&] {
    if (server <= 0) server = Command::trainer_of_rank(2, "log.name=among");
    if (server > 0) ports = ports_of(server);
    return !ports.empty() || over(job.pid());
  })) << job.output();
  ASSERT_FALSE(ports.empty()) << job.output();
  const std::vector<Descriptor> strangers = dial_as_strangers(*ports.begin());
  EXPECT_TRUE(job.wait_for("rank 2 refused ")) << job.output();
  std::ofstream(go) << "\n";
  ASSERT_TRUE(job.wait_for("step 3/")) << job.output();
  EXPECT_TRUE(ports_of(server).empty());
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("connections of strangers over the network"));
  expect_same_losses(metrics_of(folder.root / "among"), metrics_of(folder.root / "alone"), 0);
}

// Trains on so many ranks, of which all but one must be left, kills rank 2 and stops the run after the next validation.
// Returns its metrics, as many as the steps of its last checkpoint.
std::vector<StepMetrics> survives_rank_2(const RunFolder& folder, int ranks, const std::vector<std::string>& run) {
  const std::string left = std::to_string(ranks - 1);
  auto words = folder.command("survives", ranks, run);
  words.insert(words.end(), {"--survive", left});
  Command job(words, folder.root / "survives.output");
  EXPECT_TRUE(job.wait_for("step 8/")) << job.output();
  const pid_t pid = Command::trainer_of_rank(2, "log.name=survives");
  EXPECT_GT(pid, 0);
  if (pid <= 0) return {};
  kill(pid, SIGKILL);
  EXPECT_TRUE(job.wait_for("rank 2 is lost; 2 of 3 ranks go on, and its samples are left out")) << job.output();
  const size_t before = job.output().size();
  EXPECT_TRUE(job.wait_for("val_loss", 60, before)) << job.output();
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 0) << job.output();
  EXPECT_THAT(job.output(), testing::AllOf(HasSubstr("the job goes on, ranks left: " + left), HasSubstr("saved")));
  CheckpointReader reader(resolve_checkpoint(folder.root / "survives"));
  reader.verify();
  std::vector<StepMetrics> steps = metrics_of(folder.root / "survives");
  EXPECT_EQ(reader.manifest().step, static_cast<int64_t>(steps.size()));
  return steps;
}

// Rank 3 only serves; rank 2 is lost, and its samples with it.
TEST(ServerCommand, GoesOnWithoutAKilledWorker_OfADedicatedServer) {
  RunFolder folder;
  const std::vector<std::string> run = {"train.steps=3000",           "train.eval_every=4",
                                        "checkpoint.every=3",         "optimizer.clip=0",
                                        "strategy.sync=server_async", "strategy.dedicated_servers=1"};
  EXPECT_FALSE(survives_rank_2(folder, 4, run).empty());

  auto refused = folder.command("refused", 2, run);
  refused.insert(refused.end(), {"--survive", "2"});
  Command command(refused, folder.root / "refused.output");
  EXPECT_EQ(command.wait(), 2);
  EXPECT_THAT(command.output(), HasSubstr("can't do without any of its 2 ranks, which all serve, but for rank 0"));
}

TEST(ServerCommand, GoesOnWithoutAKilledWorker_WhereItMaySurvive) {
  RunFolder folder;
  const std::vector<std::string> run = {"train.steps=3000", "train.eval_every=4",         "checkpoint.every=3",
                                        "optimizer.clip=0", "strategy.sync=server_async", "strategy.servers=1"};
  const std::vector<StepMetrics> steps = survives_rank_2(folder, 3, run);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front().ranks, 3);
  EXPECT_EQ(steps.back().ranks, 2);

  for (const std::string wrong : {"strategy.sync=server", "strategy.servers=3"}) {
    auto refused = folder.command("refused", 3, with(run, {wrong}));
    refused.insert(refused.end(), {"--survive", "2"});
    Command command(refused, folder.root / "refused.output");
    EXPECT_EQ(command.wait(), 2);
    EXPECT_THAT(command.output(), HasSubstr("--survive 2: this run can't do without any of its 3 ranks"));
  }
}

}  // namespace
}  // namespace herd::train
