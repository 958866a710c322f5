// A job of servers and workers that save now and then, of which one is killed at any moment and which then starts
// again: each push that was acknowledged before a checkpoint is in the weights of that checkpoint, and no push is there
// twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/fork_world.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_client.h"
#include "tests/comm/between_hosts.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

constexpr int kJobRanks = 3, kJobServers = 2;  // all ranks work, the first ones serve, too
constexpr int kStepsBetweenSaves = 3;

const KeyTable& job_keys() {
  static const KeyTable keys{{.elements = 5000}, {.elements = 3}};
  return keys;
}

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(Code::kBug, what);
}

// The checkpoint that counts, and how often each key was pushed and acknowledged before it.
struct Latest {
  int64_t id = 0, pushes = 0;
};

Latest read_latest(const fs::path& folder) {
  Latest latest;
  std::ifstream(folder / "latest") >> latest.id >> latest.pushes;
  return latest;
}

fs::path file_of_server(const fs::path& folder, int64_t id, Rank rank) {
  return folder / ("server" + std::to_string(rank) + "." + std::to_string(id));
}

// Each push is a gradient of ones, and the rate is 1: a weight is the number of pushes, with its sign changed.
class Job {
 public:
  Job(Communicator& world, fs::path folder) : world_(world), folder_(std::move(folder)), latest_(read_latest(folder_)) {
    ServerOptions options{.staleness = kAsynchronous, .optimizer = kernels::SgdHyper{.rate = 1}};
    options.updates_before = latest_.pushes;
    if (latest_.id > 0 && world_.rank() < kJobServers) {
      saved_.open(file_of_server(folder_, latest_.id, world_.rank()), std::ios::binary);
      int64_t pushes = -1;
      saved_.read(reinterpret_cast<char*>(&pushes), sizeof pushes);
      require(pushes == latest_.pushes,
              "a server has saved " + std::to_string(pushes) + " updates of " + std::to_string(latest_.pushes));
      options.initial = [this](int64_t index, int64_t, std::span<float> weights) {
        const auto before = index == 0 ? 0 : job_keys().piece(0, world_.rank(), kJobServers).size();
        saved_.seekg(static_cast<std::streamoff>(sizeof(int64_t) + static_cast<size_t>(before) * sizeof(float)));
        saved_.read(reinterpret_cast<char*>(weights.data()), static_cast<std::streamsize>(weights.size_bytes()));
      };
    }
    const ServerLayout layout = colocated_servers(kJobRanks, kJobServers);
    if (world_.rank() < kJobServers) server_.emplace(world_, layout, job_keys(), options);
    client_.emplace(world_, layout, job_keys(), server_ ? &*server_ : nullptr);
    check_weights(latest_.pushes);
    world_.barrier();  // nobody pushes before all have looked
    if (world_.rank() == 0) std::ofstream(folder_ / "begun");
  }

  void run(int64_t steps) {
    const std::vector<float> ones(5000, 1);
    for (int64_t step = 1; step <= steps; ++step) {
      std::vector<ServerCall> calls;
      for (int64_t key = 0; key < job_keys().size(); ++key)
        calls.push_back(
            client_->start_push(key, std::span(ones).first(static_cast<size_t>(job_keys().at(key).elements))));
      for (ServerCall& call : calls) call.wait();
      if (step % kStepsBetweenSaves == 0) save(latest_.pushes + kJobRanks * step, latest_.id + step);
    }
  }

 private:
  void check_weights(int64_t pushes) {
    for (int64_t key = 0; key < job_keys().size(); ++key) {
      weights_.resize(static_cast<size_t>(job_keys().at(key).elements));
      client_->pull(key, weights_);
      for (const float weight : weights_) {
        require(
            weight == -static_cast<float>(pushes),
            "key " + std::to_string(key) + " has " + std::to_string(-weight) + " pushes of " + std::to_string(pushes));
      }
    }
  }

  void save(int64_t pushes, int64_t id) {
    world_.barrier();  // all pushes so far are acknowledged
    if (server_) {
      std::ofstream file(file_of_server(folder_, id, world_.rank()), std::ios::binary);
      file.write(reinterpret_cast<const char*>(&pushes), sizeof pushes);
      for (int64_t key = 0; key < job_keys().size(); ++key) {
        const auto piece = job_keys().piece(key, world_.rank(), kJobServers);
        require(piece.size() == 0 || latest_.pushes + server_->version(key) == pushes, "a server lacks a push");
        weights_.resize(static_cast<size_t>(job_keys().at(key).elements));
        client_->pull(key, weights_);
        file.write(reinterpret_cast<const char*>(weights_.data() + piece.begin),
                   static_cast<std::streamsize>(static_cast<size_t>(piece.size()) * sizeof(float)));
      }
    }
    world_.barrier();
    if (world_.rank() == 0) {
      std::ofstream(folder_ / "latest.new") << id << ' ' << pushes;
      fs::rename(folder_ / "latest.new", folder_ / "latest");
    }
    world_.barrier();
  }

  Communicator& world_;
  const fs::path folder_;
  const Latest latest_;
  std::ifstream saved_;
  std::optional<ParameterServer> server_;
  std::optional<ServerClient> client_;
  std::vector<float> weights_;
};

TEST(ServerRestarts, LoseNoAcknowledgedPushThatACheckpointStates_WhoeverIsKilledWhenever) {
  const int kills = std::getenv("HERD_FULL_TESTS") != nullptr ? 100 : 4;
  const TemporaryFolder folder;
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  int64_t pushes = 0;
  int advanced = 0;
  for (int kill = 0; kill < kills; ++kill) {
    const Rank victim = static_cast<Rank>(kill < 3 ? kill : random() % kJobRanks);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", kill " + std::to_string(kill) + " of rank " +
                 std::to_string(victim));
    fs::remove(folder / "begun");
    ForkWorld job(
        kJobRanks, [&](Communicator& world) { Job(world, folder.path()).run(1'000'000); },
        kill % 2 == 0 ? WorldOptions{} : testing_support::on_hosts({0, 1, 2}));
    for (int i = 0; i < 3000 && !fs::exists(folder / "begun"); ++i) std::this_thread::sleep_for(10ms);
    const bool must_save = kill + 1 == kills && advanced == 0;  // beside other programs all may be killed before
    for (int i = 0; must_save && i < 3000 && read_latest(folder.path()).pushes <= pushes; ++i)
      std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));
    job.kill(victim, SIGKILL);
    for (const RankEnd& end : job.wait()) EXPECT_THAT(end.error, Not(HasSubstr("kBug")));
    advanced += read_latest(folder.path()).pushes > pushes ? 1 : 0;
    pushes = read_latest(folder.path()).pushes;
  }
  EXPECT_GE(advanced, 1) << "jobs save before the kill";
  run_forked(kJobRanks, [&](Communicator& world) { Job(world, folder.path()).run(kStepsBetweenSaves); });
  EXPECT_EQ(read_latest(folder.path()).pushes, pushes + kJobRanks * kStepsBetweenSaves);
}

}  // namespace
}  // namespace herd
