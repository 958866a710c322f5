#include "herd/cli/bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/cli/tune.h"
#include "herd/comm/context.h"
#include "herd/comm/fork_world.h"
#include "herd/comm/inproc_world.h"
#include "herd/launch/environment.h"
#include "herd/schedule/parts.h"

namespace herd::cli {
namespace {

using std::chrono::steady_clock;

const char* const kOps[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier", "send"};

float input_of(Rank rank, int64_t element, int repetition) {
  return static_cast<float>((rank * 3 + element + repetition) & 15);
}

class Memory {
 public:
  Memory(Communicator& comm, int64_t elements, bool symmetric) {
    if (symmetric) {
      shared_ = comm.allocate_symmetric(std::max<int64_t>(elements * 4, 4));
      data_ = shared_.span<float>().first(static_cast<size_t>(elements));
    } else {
      private_.resize(static_cast<size_t>(elements));
      data_ = private_;
    }
  }
  std::span<float> data() { return data_; }

 private:
  SymmetricMemory shared_;
  std::vector<float> private_;
  std::span<float> data_;
};

// One rank's buffers for one operation and size.
class Bench {
 public:
  Bench(Communicator& comm, const BenchOptions& options, int64_t bytes)
      : comm_(comm),
        op_(options.op),
        elements_(bytes / 4),
        mine_(part_of(elements_, comm.size(), comm.rank())),
        whole_(comm, elements_, options.symmetric),
        part_(comm, part_of(elements_, comm.size(), 0).size(), options.symmetric) {
    call_.algorithm = options.algorithm;
  }

  // Writes this rank's input.
  void rewrite(int repetition) {
    const bool gathers = op_ == "all_gather";
    const std::span<float> to = gathers ? own_part() : whole_.data();
    const int64_t first = gathers ? mine_.begin : 0;
    for (size_t i = 0; i < to.size(); ++i) to[i] = input_of(comm_.rank(), first + static_cast<int64_t>(i), repetition);
  }

  void run() {
    if (op_ == "all_reduce")
      comm_.all_reduce(whole_.data(), call_);
    else if (op_ == "all_gather")
      comm_.all_gather(own_part(), whole_.data(), call_);
    else if (op_ == "reduce_scatter")
      comm_.reduce_scatter(whole_.data(), own_part(), call_);
    else if (op_ == "broadcast")
      comm_.broadcast(whole_.data(), 0, call_);
    else if (op_ == "reduce")
      comm_.reduce(whole_.data(), 0, call_);
    else if (op_ == "barrier")
      comm_.barrier(call_);
    else if (comm_.rank() == 0)
      comm_.send(whole_.data(), 1);
    else if (comm_.rank() == 1)
      comm_.receive(whole_.data(), 0);
  }

  // Every `stride`-th element of the result against the definition.
  void check(int repetition, int64_t stride) {
    const bool scatters = op_ == "reduce_scatter";
    if (op_ == "barrier" || (op_ == "reduce" && comm_.rank() != 0) || (op_ == "send" && comm_.rank() > 1)) return;
    const std::span<float> from = scatters ? own_part() : whole_.data();
    for (int64_t i = 0; i < static_cast<int64_t>(from.size()); i += stride) {
      const int64_t element = scatters ? mine_.begin + i : i;
      if (from[static_cast<size_t>(i)] == expected(element, repetition)) continue;
      throw Error(Code::kBug, op_ + ": element " + std::to_string(element) + " on rank " +
                                  std::to_string(comm_.rank()) + " is " + std::to_string(from[static_cast<size_t>(i)]) +
                                  ", not " + std::to_string(expected(element, repetition)));
    }
  }

 private:
  std::span<float> own_part() { return part_.data().first(static_cast<size_t>(mine_.size())); }
  float expected(int64_t element, int repetition) const {
    if (op_ == "broadcast" || op_ == "send") return input_of(0, element, repetition);
    if (op_ == "all_gather") {
      Rank owner = 0;
      while (part_of(elements_, comm_.size(), owner).end <= element) ++owner;
      return input_of(owner, element, repetition);
    }
    float sum = 0;
    for (Rank rank = 0; rank < comm_.size(); ++rank) sum += input_of(rank, element, repetition);
    return sum;
  }

  Communicator& comm_;
  std::string op_;
  int64_t elements_;
  Range mine_;
  Memory whole_, part_;
  OpOptions call_;
};

double bus_factor(const std::string& op, int n) {
  if (op == "all_reduce") return 2.0 * (n - 1) / n;
  return op == "all_gather" || op == "reduce_scatter" ? 1.0 * (n - 1) / n : 1;
}

void print(const BenchResult& r, bool json) {
  if (json) {
    const nlohmann::ordered_json line = {{"op", r.op},
                                         {"ranks", r.ranks},
                                         {"bytes", r.bytes},
                                         {"algorithm", r.algorithm},
                                         {"transport", r.transport},
                                         {"dtype", "fp32"},
                                         {"us_min", r.us_min},
                                         {"us_median", r.us_median},
                                         {"algbw_GBps", r.algbw_GBps},
                                         {"busbw_GBps", r.busbw_GBps},
                                         {"bound_GBps", r.bound_GBps}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%-15s %5d  %10s  %-20s %12s %12s %9.2f %9.2f %9.2f\n", r.op.c_str(), r.ranks,
                format_bytes(static_cast<double>(r.bytes)).c_str(), r.algorithm.c_str(), format_us(r.us_min).c_str(),
                format_us(r.us_median).c_str(), r.algbw_GBps, r.busbw_GBps, r.bound_GBps);
  }
  std::fflush(stdout);
}

void run_rank(Communicator& comm, const BenchOptions& options) {
  if (options.op == "send" && comm.size() < 2) throw Error(Code::kBadConfig, "bench send needs 2 ranks, not 1");
  const double bound = options.op == "barrier" ? 0 : memory_bound(comm, options.op);
  if (comm.rank() == 0 && !options.json) {
    std::printf("%-15s %5s  %10s  %-20s %12s %12s %9s %9s %9s\n", "op", "ranks", "bytes", "algorithm", "min", "median",
                "algbw", "busbw", "bound");
  }
  for (int64_t bytes : options.bytes) {
    const BenchResult result = bench(comm, options, bytes, bound);
    if (comm.rank() == 0) print(result, options.json);
    if (options.op == "barrier") break;
  }
}

// Forks the ranks; prints the first error and returns the exit status.
int run_processes(int num_ranks, const std::function<void(Communicator&)>& body, const WorldOptions& options) {
  ForkWorld world(num_ranks, body, options);
  for (const RankEnd& end : world.wait()) {
    if (end.status == 0) continue;
    std::fprintf(stderr, "herd: %s\n", end.error.empty() ? "a rank was killed" : end.error.c_str());
    return end.error.rfind("kBadConfig", 0) == 0 ? 2 : 1;
  }
  return 0;
}

}  // namespace

BenchResult bench(Communicator& comm, const BenchOptions& options, int64_t bytes, double bound_GBps) {
  bytes = options.op == "barrier" ? 0 : bytes / 4 * 4;
  Bench one(comm, options, bytes);
  std::vector<double> us;
  std::string algorithm = "point_to_point";
  double spent_us = 0;
  int repetitions = 3;
  for (int i = 0; i < repetitions; ++i) {
    one.rewrite(i);
    comm.barrier();
    const auto begin = steady_clock::now();
    one.run();
    const double took = std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count();
    one.check(i, i == 0 ? 1 : std::max<int64_t>(1, bytes / 4 / 64 | 1));
    us.push_back(took);
    spent_us += std::chrono::duration<double, std::micro>(steady_clock::now() - begin).count();
    if (i == 0 && options.op != "send") algorithm = comm::Access::last_algorithm(comm);
    if (i == 2) {  // the first ones warm up; from here on all ranks agree how many there will be
      std::vector<double> slowest = {std::max(spent_us / 3, 2.0)};
      comm.all_reduce(slowest, {.op = ReduceOp::kMax});
      repetitions = 3 + static_cast<int>(std::clamp(options.seconds * 1e6 / slowest[0], 5.0, 20000.0));
      us.clear();
    }
  }
  comm.all_reduce(us, {.op = ReduceOp::kMax});
  std::sort(us.begin(), us.end());
  const std::string transport(comm::Access::context(comm).transport->name());
  BenchResult result{options.op, algorithm,         transport, comm.size(), bytes,
                     us.front(), us[us.size() / 2], 0,         0,           bound_GBps};
  result.algbw_GBps = static_cast<double>(bytes) / result.us_median / 1e3;
  result.busbw_GBps = result.algbw_GBps * bus_factor(options.op, comm.size());
  return result;
}

int run_bench(const BenchOptions& options) {
  if (std::find(std::begin(kOps), std::end(kOps), options.op) == std::end(kOps)) {
    std::string names;
    for (const char* name : kOps) names += (names.empty() ? "" : ", ") + std::string(name);
    throw Error(Code::kBadConfig, "no operation \"" + options.op + "\" to bench; valid: " + names);
  }
  const auto body = [&](Communicator& comm) { run_rank(comm, options); };
  if (launch::read_environment().size > 1) {
    Communicator comm = Communicator::create();
    body(comm);
  } else if (options.transport == "inproc") {
    run_inproc(options.ranks, body);
  } else if (options.transport == "shm" || options.transport == "ucx") {
    std::fflush(nullptr);
    return run_processes(options.ranks, body, options.transport == "ucx" ? each_alone(options.ranks) : WorldOptions{});
  } else {
    throw Error(Code::kBadConfig,
                "transport \"" + options.transport + "\" is not in this build (have: shm, inproc, ucx)");
  }
  return 0;
}

void add_bench_command(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  auto sizes = std::make_shared<std::string>("4KiB,1MiB,64MiB");
  CLI::App* command = app.add_subcommand("bench", "Time a collective here, beside the memory's limit");
  command->add_option("op", options->op, "all_reduce, all_gather, reduce_scatter, broadcast, reduce, barrier or send")
      ->required();
  command->add_option("-n,--ranks", options->ranks, "how many, where no launcher says it")->check(CLI::Range(1, 1024));
  command->add_option("--bytes", *sizes, "message sizes, such as 4KiB,1MiB,256MiB")->capture_default_str();
  command->add_option("--algorithm", options->algorithm, "see herd explain; chosen where it is not given");
  command
      ->add_option("--transport", options->transport,
                   "shm, ucx (each rank as a host of its own, over the loopback) or inproc")
      ->capture_default_str();
  command->add_flag("--symmetric", options->symmetric, "buffers in symmetric memory: no staging copies");
  command->add_flag("--json", options->json, "one object per line");
  command->add_option("--seconds", options->seconds, "about, per size")->capture_default_str();
  auto tuning = std::make_shared<std::string>();
  command->add_option("--tune", *tuning, "time every algorithm, write the fastest into this file");
  command->callback([options, sizes, tuning] {
    options->bytes.clear();
    std::istringstream list(*sizes);
    for (std::string size; std::getline(list, size, ',');) options->bytes.push_back(parse_bytes(size));
    if (!tuning->empty()) {
      run_tune({options->op, options->ranks, options->bytes, options->symmetric, options->seconds, *tuning});
      return;
    }
    if (const int status = run_bench(*options); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
