// Trains a run file with ranks of which one is slow, and prints when rank 0 had which loss:
//   herd run -n 4 -- stragglers examples/gpt_kjv.toml --slow random --pace-ms 50 --seed 1 strategy.sync=server_async
// A rank is paced by sleeping in each step, between its pull and its push: --pace-ms, or --factor times as long where
// it is slow.
//   --slow none | always (the last rank) | random (a rank of each step, drawn from --seed)
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "herd/train/train_rank.h"
#include "herd/train/trainer.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Pace {
  std::string slow = "none";
  double ms = 50, factor = 3;
  uint64_t seed = 1;

  bool is_slow(int rank, int ranks, int64_t step) const {
    if (slow == "always") return rank == ranks - 1;
    std::mt19937_64 random(seed * 1'000'003 + static_cast<uint64_t>(step));
    return slow == "random" && rank == static_cast<int>(random() % static_cast<uint64_t>(ranks));
  }
};

void train(herd::spec::RunFile run, herd::Communicator& comm, const herd::train::JobAttempt& attempt,
           const Pace& pace) {
  const int rank = comm.rank(), ranks = comm.size();
  const Clock::time_point begin = Clock::now();
  double first_s = -1;
  const auto step_done = [&](const herd::StepMetrics& metrics) {
    const double factor = pace.is_slow(rank, ranks, metrics.step) ? pace.factor : 1;
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(pace.ms * factor));
    const double now_s = std::chrono::duration<double>(Clock::now() - begin).count();
    if (first_s < 0) first_s = now_s;  // the first step waits for all to be ready
    if (rank != 0) return;
    std::printf("{\"step\":%lld,\"s\":%.3f,\"loss\":%.6f,\"tokens\":%lld,\"staleness\":%lld}\n",
                static_cast<long long>(metrics.step), now_s - first_s, metrics.loss,
                static_cast<long long>(metrics.tokens), static_cast<long long>(metrics.staleness.value_or(0)));
  };
  herd::Trainer(std::move(run), comm, attempt, {.step_done = step_done}).run();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Pace pace;
    std::string run_file;
    std::vector<std::string> overrides;
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : throw std::invalid_argument(word); };
      if (word == "--slow")
        pace.slow = value();
      else if (word == "--pace-ms")
        pace.ms = std::stod(value());
      else if (word == "--factor")
        pace.factor = std::stod(value());
      else if (word == "--seed")
        pace.seed = std::stoull(value());
      else if (run_file.empty())
        run_file = word;
      else
        overrides.push_back(word);
    }
    if (pace.slow != "none" && pace.slow != "always" && pace.slow != "random")
      throw std::invalid_argument("--slow is none, always or random");
    return herd::train::train_rank(
        run_file, overrides,
        [&](herd::spec::RunFile run, herd::Communicator& comm, const herd::train::JobAttempt& attempt) {
          train(std::move(run), comm, attempt, pace);
        });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
