#include "herd/cli/bench.h"

#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "herd/base/elapsed.h"
#include "herd/base/error.h"
#include "herd/base/median.h"
#include "herd/base/standard_streams.h"
#include "herd/base/units.h"
#include "herd/cli/bench_bound.h"
#include "herd/cli/bench_device.h"
#include "herd/cli/bench_operation.h"
#include "herd/cli/collective_options.h"
#include "herd/cli/core_distance.h"
#include "herd/cli/tune.h"
#include "herd/collectives/choose.h"
#include "herd/comm/connect_world.h"
#include "herd/comm/context.h"
#include "herd/comm/core_share.h"
#include "herd/comm/fork_world.h"
#include "herd/comm/inproc_world.h"
#include "herd/launch/environment.h"
#include "herd/memory/shared_memory.h"
#include "herd/topology/topology_text.h"

namespace herd::cli {
namespace {

using std::chrono::steady_clock;

constexpr int kMostRepetitions = 20000;
constexpr int kBoundSamples = 6;  // samples of the memory bound, for each kind of store

ReduceOp redop_of(const BenchOptions& options) {
  const DType dtype = parse_dtype(options.dtype);
  if (options.redop.empty()) return dtype == DType::kBool ? ReduceOp::kMax : ReduceOp::kSum;
  const ReduceOp op = parse_reduce_op(options.redop);
  check_supported(op, dtype);
  return op;
}

// Refuses a size that leaves no element, unless it is 0.
void check_bytes(std::string_view op, int64_t bytes, DType dtype, int num_ranks) {
  if (op == "barrier" || bytes <= 0 || whole_elements(op, bytes, dtype, num_ranks) > 0) return;
  const int64_t min_elements = least_elements(op, num_ranks);
  throw Error(Code::kBadConfig, "bench " + std::string(op) + " needs " + std::to_string(min_elements) + " x " +
                                    std::to_string(size_of(dtype)) + " B of " + std::string(dtype_name(dtype)) +
                                    (min_elements > 1 ? ", an element for each rank" : "") + ", but --bytes is " +
                                    std::to_string(bytes) + "\n  fix: --bytes " +
                                    std::to_string(min_elements * size_of(dtype)));
}

void check_op(const BenchOptions& options, std::string_view op, int num_ranks) {
  const DType dtype = parse_dtype(options.dtype);
  const ReduceOp redop = redop_of(options);
  const int max_ranks = BenchPattern::max_ranks(redop, dtype);
  if (bench_kind(op).reduces && num_ranks > max_ranks) {
    throw Error(Code::kBadConfig, "bench with " + options.dtype + " knows a " + std::string(reduce_op_name(redop)) +
                                      " exactly up to " + std::to_string(max_ranks) + " ranks, but there are " +
                                      std::to_string(num_ranks) + "\n  fix: --dtype fp32, or --redop max");
  }
  check_segments(op, options.segment_bytes);
  if (op == "send" && num_ranks < 2) throw Error(Code::kBadConfig, "bench send needs 2 ranks, not 1");
  for (const int64_t bytes : options.bytes) check_bytes(op, bytes, dtype, num_ranks);
}

void check_device(const BenchOptions& options) {
  if (options.device != "cpu" && options.device != "cuda")
    throw Error(Code::kBadConfig, "--device is cpu or cuda, but it is " + options.device);
  comm::parse_device_engine(options.engine);
  if (options.device != "cpu" && options.symmetric)
    throw Error(Code::kBadConfig, "--symmetric is memory of the host\n  fix: leave it out with --device cuda");
  if (options.device == "cpu" && options.engine != "auto")
    throw Error(Code::kBadConfig, "--engine is for buffers on a device\n  fix: --device cuda");
}

void check(const BenchOptions& options, int num_ranks) {
  if (options.root < 0 || options.root >= num_ranks) {
    throw Error(Code::kBadConfig, "--root is a rank from 0 to " + std::to_string(num_ranks - 1) + ", but it is " +
                                      std::to_string(options.root));
  }
  if (options.op == "all") {
    for (const std::string_view op : bench_kinds()) {
      if (op != "send" || num_ranks > 1) check_op(options, op, num_ranks);
    }
    return;
  }
  check_device(options);
  if (options.in_place && bench_kind(options.op).in_place == InPlace::kNever) {
    throw Error(Code::kBadConfig,
                "bench " + options.op + " has no result that takes its input's place\n  fix: leave out --in-place");
  }
  check_op(options, options.op, num_ranks);
}

// Holds what is measured of the machine between the repetitions of an operation.
struct MachineSamples {
  std::vector<double> cached, streamed;  // us per byte of the message, by ordinary and by streaming stores
  std::vector<double> core_ns;           // round trips between two cores
};

void measure_machine(MemoryBound* bound, CoreDistance& distance, MachineSamples& samples) {
  samples.core_ns.push_back(distance.round_trip_ns());
  if (bound == nullptr) return;
  samples.streamed.push_back(bound->once(kernels::WriteKind::kStream));
  samples.cached.push_back(bound->once(kernels::WriteKind::kCached));
}

double bound_of(const MachineSamples& samples) {
  return samples.cached.empty() ? 0 : 1 / std::min(median(samples.cached), median(samples.streamed)) / 1e3;
}

void print_header() {
  std::printf("# %12s %12s %6s %6s  %-15s %-14s %12s %12s %10s %8s %8s %7s %9s %6s %7s\n", "size", "count", "type",
              "redop", "op", "algorithm", "min", "time", "predicted", "algbw", "busbw", "#wrong", "bound", "of it",
              "cores");
  std::printf("# %12s %12s %6s %6s  %-15s %-14s %12s %12s %10s %8s %8s %7s %9s %6s %7s\n", "(B)", "(elements)", "", "",
              "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "(GB/s)", "(%)", "(ns)");
}

void print(const BenchResult& r, bool json) {
  if (json) {
    const nlohmann::ordered_json line = {{"op", r.op},
                                         {"ranks", r.ranks},
                                         {"bytes", r.bytes},
                                         {"count", r.count},
                                         {"algorithm", r.algorithm},
                                         {"transport", r.transport},
                                         {"memory", r.symmetric ? "symmetric" : "ordinary"},
                                         {"in_place", r.in_place},
                                         {"root", r.root},
                                         {"dtype", r.dtype},
                                         {"redop", r.redop},
                                         {"repetitions", r.repetitions},
                                         {"us_min", r.us_min},
                                         {"us_median", r.us_median},
                                         {"predicted_us", r.predicted_us},
                                         {"algbw_GBps", r.algbw_GBps},
                                         {"busbw_GBps", r.busbw_GBps},
                                         {"bound_GBps", r.bound_GBps},
                                         {"core_ns", r.core_ns},
                                         {"wrong", r.wrong},
                                         {"device", r.device},
                                         {"engine", r.engine},
                                         {"copy_GBps", r.copy_GBps},
                                         {"to_host_GBps", r.to_host_GBps},
                                         {"to_device_GBps", r.to_device_GBps}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    const double share = r.bound_GBps > 0 ? 100 * r.algbw_GBps / r.bound_GBps : 0;
    std::printf("  %12lld %12lld %6s %6s  %-15s %-14s %12.2f %12.2f %10.2f %8.2f %8.2f %7lld %9.2f %6.0f %7.0f\n",
                static_cast<long long>(r.bytes), static_cast<long long>(r.count), r.dtype.c_str(), r.redop.c_str(),
                r.op.c_str(), r.algorithm.c_str(), r.us_min, r.us_median, r.predicted_us, r.algbw_GBps, r.busbw_GBps,
                static_cast<long long>(r.wrong), r.bound_GBps, share, r.core_ns);
  }
  std::fflush(stdout);
}

Device device_of(const Communicator& comm, const BenchOptions& options) {
  if (options.device == "cpu") return {};
  return {DeviceKind::kCuda, comm.rank() % device_driver(DeviceKind::kCuda).count()};
}

void bench_sizes(Communicator& comm, const BenchOptions& options) {
  for (const int64_t bytes : options.bytes) {
    const BenchResult result = bench(comm, options, bytes);
    if (comm.rank() == 0) print(result, options.json);
    check_right(result);
    if (options.op == "barrier") break;
  }
}

void run_rank(Communicator& comm, BenchOptions options) {
  if (options.device != "cpu") {
    const DeviceEngineChoice choice =
        comm.use_device(device_of(comm, options), comm::parse_device_engine(options.engine));
    if (comm.rank() == 0 && !options.json) {
      std::printf("# device %s, engine %s: %s\n", options.device.c_str(),
                  std::string(comm::device_engine_name(choice.engine)).c_str(), choice.reason.c_str());
    }
  }
  if (comm.rank() == 0 && !options.json) print_header();
  if (options.op != "all") return bench_sizes(comm, options);
  for (const std::string_view op : bench_kinds()) {
    options.op = op;
    if (op != "send" || comm.size() > 1) bench_sizes(comm, options);
  }
}

// Forks the ranks; prints the first error and returns the exit status. The table is what rank 0's process prints.
int run_processes(int num_ranks, const std::function<void(Communicator&)>& body, const WorldOptions& options) {
  const auto run_and_check = [&](Communicator& comm) {
    body(comm);
    if (const std::string failure = output_failure(); !failure.empty()) throw Error(Code::kStorage, failure);
  };
  ForkWorld world(num_ranks, run_and_check, options);
  for (const RankEnd& end : world.wait()) {
    if (end.status == 0) continue;
    if (WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGPIPE) return 128 + SIGPIPE;  // the reader has left
    std::fprintf(stderr, "herd: %s\n", end.error.empty() ? "a rank was killed" : end.error.c_str());
    return end.error.rfind("kBadConfig", 0) == 0 ? 2 : 1;
  }
  return 0;
}

}  // namespace

void check_room(const std::vector<int64_t>& sizes, int ranks) {
  const launch::Environment job = launch::read_environment();
  const int local_ranks = std::max(1, job.size > 1 ? job.local_size : ranks);
  const int64_t available = available_memory(), limit = available / local_ranks;
  const int64_t bytes = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  if (bytes <= limit) return;
  throw Error(Code::kBadConfig, "each of " + std::to_string(local_ranks) + " ranks holds a message of --bytes " +
                                    format_bytes(static_cast<double>(bytes)) + ", but this machine has " +
                                    format_bytes(static_cast<double>(available)) + " of memory left\n  fix: --bytes " +
                                    std::to_string(limit) + " or less");
}

std::vector<double> times_of_all(Communicator& comm, bool one_clock, const std::vector<Span>& own) {
  std::vector<int64_t> negated_begins, ends;  // ns; the largest negated begin is the earliest
  for (const Span& span : own) {
    const bool took_part = span.end_ns >= span.begin_ns;
    negated_begins.push_back(one_clock ? -span.begin_ns : 0);
    ends.push_back(one_clock || !took_part ? span.end_ns : span.end_ns - span.begin_ns);
  }
  comm.all_reduce(negated_begins, {.op = ReduceOp::kMax});
  comm.all_reduce(ends, {.op = ReduceOp::kMax});
  std::vector<double> us;
  for (size_t i = 0; i < own.size(); ++i) us.push_back(1e-3 * static_cast<double>(ends[i] + negated_begins[i]));
  return us;
}

void check_right(const BenchResult& result) {
  if (result.wrong == 0) return;
  throw Error(Code::kBug,
              result.op + " by " + result.algorithm + ": " + std::to_string(result.wrong) + " wrong elements");
}

MoreRepetitions more_repetitions(int done, double spent_us, double seconds, bool are_warm_ups) {
  const int counted = are_warm_ups ? 0 : done;
  const double us_left = seconds * 1e6 - (are_warm_ups ? 0 : spent_us);
  if (!are_warm_ups && (us_left < 0.1 * seconds * 1e6 || done >= kMostRepetitions)) return {};
  const double fit = std::min(us_left / std::max(spent_us / done, 2.0), 1.0 * (kMostRepetitions - counted));
  const double least = are_warm_ups ? 7 : 1;
  return {.count = static_cast<int>(std::clamp(fit, least, std::max(least, 10.0 * done))),
          .stride = std::max(1, (counted + static_cast<int>(std::max(fit, least))) / kBoundSamples)};
}

BenchResult bench(Communicator& comm, const BenchOptions& options, int64_t bytes) {
  check(options, comm.size());
  const BenchKind& kind = bench_kind(options.op);
  const DType dtype = parse_dtype(options.dtype);
  bytes = whole_elements(options.op, bytes, dtype, comm.size()) * size_of(dtype);
  const Device device = device_of(comm, options);
  const bool on_device = device.kind != DeviceKind::kCpu;
  BenchOperation operation(comm, {options.op, options.algorithm, dtype, redop_of(options), bytes, options.symmetric,
                                  options.in_place, options.root, options.segment_bytes, device});
  std::unique_ptr<MemoryBound> bound;
  if (bytes > 0 && !on_device) bound = std::make_unique<MemoryBound>(comm, kind.shape(comm.size()));
  CoreDistance distance(comm);
  MachineSamples samples;
  std::vector<Span> spans;
  std::string algorithm = "point_to_point";
  double wrong = 0, spent_us = 0;
  int repetitions = kWarmUps, stride = 1;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = steady_clock::now();
    operation.rewrite(i);
    comm.barrier();
    comm.barrier();  // the last rank to reach the first barrier leaves it first, so a second one evens the start
    const int64_t begin_ns = now_ns();
    operation.run();
    spans.push_back(operation.takes_part() ? Span{begin_ns, now_ns()} : Span{});
    if (i == 0 && options.op != "send") algorithm = comm::CommunicatorTestAccess::last_algorithm(comm);
    comm.barrier();  // a rank that checks would take the core of a rank that still runs
    operation.read_back();
    wrong += static_cast<double>(operation.wrong(i));
    spent_us += us_since(start);
    const bool warm = i >= kWarmUps;
    if (warm && (i - kWarmUps) % stride == 0) measure_machine(bound.get(), distance, samples);
    if (i != repetitions - 1) continue;
    // The first repetitions warm up. Then all ranks agree on how many more fit into the time left. They agree again
    // after these, since the first ones may have been slow, or quick.
    std::vector<double> spent = {spent_us};
    comm.all_reduce(spent, {.op = ReduceOp::kMax});
    const MoreRepetitions more = more_repetitions(warm ? i + 1 - kWarmUps : kWarmUps, spent[0], options.seconds, !warm);
    if (more.count == 0) break;
    repetitions = i + 1 + more.count;
    stride = more.stride;
    if (warm) continue;
    measure_machine(bound.get(), distance, samples);
    samples = {};
    spent_us = 0;
    spans.clear();
  }
  const std::vector<double> us =
      times_of_all(comm, comm::on_one_machine(*comm::CommunicatorTestAccess::context(comm).transport), spans);
  std::vector<double> facts = {wrong, samples.core_ns.empty() ? 0 : median(samples.core_ns)};
  comm.all_reduce(std::span(facts).first(1));
  comm.broadcast(std::span(facts).last(1), 0);
  BenchResult result{options.op,
                     algorithm,
                     std::string(comm::CommunicatorTestAccess::context(comm).transport->name()),
                     options.dtype,
                     kind.reduces ? std::string(reduce_op_name(redop_of(options))) : "none",
                     comm.size(),
                     options.symmetric,
                     operation.in_place(),
                     options.root,
                     bytes,
                     bytes / size_of(dtype),
                     repetitions - kWarmUps};
  result.us_min = *std::min_element(us.begin(), us.end());
  result.us_median = median(us);
  if (options.op != "send" && comm.size() > 1 && !on_device) {
    result.predicted_us = predict_us(algorithm, operation.request(), parse_topology(comm.topology()));
  }
  result.algbw_GBps = static_cast<double>(bytes) / result.us_median / 1e3;
  result.busbw_GBps = result.algbw_GBps * kind.bus_factor(comm.size());
  result.bound_GBps = bound_of(samples);
  result.core_ns = facts[1];
  result.device = options.device;
  if (on_device) {
    const DeviceBounds limits = measure_device(comm, device, bytes);
    const DeviceEngine engine = options.op == "send" ? DeviceEngine::kStaged : comm.device_engine().engine;
    result.engine = comm::device_engine_name(engine);
    result.bound_GBps = bytes == 0 ? 0 : device_bound(limits, kind, comm.size(), engine != DeviceEngine::kStaged);
    result.copy_GBps = limits.copy;
    result.to_host_GBps = limits.to_host;
    result.to_device_GBps = limits.to_device;
  }
  result.wrong = static_cast<int64_t>(facts[0]);
  return result;
}

int run_bench(const BenchOptions& options) {
  if (options.op != "all") bench_kind(options.op);
  check_room(options.bytes, options.ranks);
  const auto body = [&](Communicator& comm) { run_rank(comm, options); };
  if (launch::read_environment().size > 1) {
    Communicator comm = Communicator::create();
    body(comm);
  } else if (options.transport == "inproc") {
    check(options, options.ranks);
    run_inproc(options.ranks, body);
  } else if (options.transport == "shm" || options.transport == "tcp" || options.transport == "ucx") {
    check(options, options.ranks);
    std::fflush(nullptr);
    if (options.transport == "ucx") {  // bound to loopback, which every user of this host reaches
      launch::Environment environment = launch::read_environment();
      environment.transport = "ucx";
      comm::wire_here(environment);  // throws where the network is not trusted
    }
    const auto wire = options.transport == "ucx" ? transport::WireKind::kUcx : transport::WireKind::kTcp;
    return run_processes(options.ranks, body,
                         options.transport == "shm" ? WorldOptions{} : one_rank_per_host(options.ranks, wire));
  } else {
    throw Error(Code::kBadConfig,
                "transport \"" + options.transport + "\" is not in this build (have: shm, inproc, tcp, ucx)");
  }
  return 0;
}

void add_bench_command(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  auto sizes = std::make_shared<std::string>("4KiB,1MiB,64MiB");
  CLI::App* command = app.add_subcommand("bench", "Time a collective here, beside the memory's limit");
  std::string names = "all";
  for (const std::string_view name : bench_kinds()) names += ", " + std::string(name);
  command->add_option("op", options->op, names)->required();
  command->add_option("-n,--ranks", options->ranks, "how many, where no launcher says it")->check(CLI::Range(1, 1024));
  command->add_option("--bytes", *sizes, "message sizes, such as 4KiB,1MiB,256MiB")->capture_default_str();
  CLI::Option* dtype =
      command->add_option("--dtype", options->dtype, "fp32, fp64, fp16, bf16, int8, uint8, int32, int64, bool")
          ->capture_default_str();
  std::string redops;
  for (const ReduceOp op : kReduceOps) redops += (redops.empty() ? "" : ", ") + std::string(reduce_op_name(op));
  CLI::Option* redop = command->add_option("--redop", options->redop, redops + "; default: sum (bool: max)");
  CLI::Option* algorithm =
      command->add_option("--algorithm", options->algorithm, "see herd explain; chosen where it is not given");
  CLI::Option* transport =
      command
          ->add_option("--transport", options->transport,
                       "shm, tcp or ucx (each rank as a host of its own, over the loopback), or inproc")
          ->capture_default_str();
  CLI::Option* device =
      command->add_option("--device", options->device, "where the buffers lie: cpu, or cuda")->capture_default_str();
  CLI::Option* engine = command->add_option("--engine", options->engine, "of --device cuda: auto, staged, ipc or nccl")
                            ->capture_default_str();
  command->add_flag("--symmetric", options->symmetric, "buffers in symmetric memory: no staging copies");
  CLI::Option* in_place = command->add_flag(
      "--in-place", options->in_place,
      "all_gather, reduce_scatter: a rank's part at its place in the whole; all_to_all: the output over the input");
  CLI::Option* root =
      command->add_option("--root", options->root, "of a broadcast, reduce, gather or scatter")->capture_default_str();
  auto segment = std::make_shared<std::string>();
  CLI::Option* segments =
      command->add_option("--segment", *segment, "bytes of a segment of pipelined algorithms; else by the message");
  CLI::Option* json = command->add_flag("--json", options->json, "one object per line");
  command->add_option("--seconds", options->seconds, "about, per size")->capture_default_str();
  auto tuning = std::make_shared<std::string>();
  command
      ->add_option("--tune", *tuning,
                   "time every algorithm on fp32, over shm or among the ranks of a job, and write the fastest into "
                   "this file, for ranks that are placed alike")
      ->excludes(dtype)
      ->excludes(redop)
      ->excludes(algorithm)
      ->excludes(transport)
      ->excludes(device)
      ->excludes(engine)
      ->excludes(in_place)
      ->excludes(root)
      ->excludes(segments)
      ->excludes(json);
  command->callback([options, sizes, segment, tuning] {
    options->bytes.clear();
    std::istringstream list(*sizes);
    for (std::string size; std::getline(list, size, ',');) options->bytes.push_back(parse_bytes(size));
    if (!segment->empty()) options->segment_bytes = parse_bytes(*segment);
    if (!tuning->empty()) {
      run_tune({options->op, options->ranks, options->bytes, options->symmetric, options->seconds, *tuning});
      return;
    }
    if (const int status = run_bench(*options); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
