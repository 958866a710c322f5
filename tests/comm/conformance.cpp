#include "tests/comm/conformance.h"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <tuple>

#include "herd/collectives/registry.h"
#include "herd/comm/collective_call.h"
#include "herd/comm/context.h"
#include "herd/comm/fingerprint.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/message_layout.h"
#include "herd/schedule/traffic.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/comm/exact_values.h"
#include "tests/comm/stand_on_grid.h"

namespace herd::testing_support {
namespace {

constexpr int64_t kLaneBytes = 1 << 20;  // of input, and of output
constexpr int64_t kGuard = 16;

double no_factor(Rank) { return 1; }

// Parts of very different size, some of them empty; for all_to_all alike in both directions, so that it may be in
// place.
std::vector<int64_t> uneven_counts(Collective collective, int n, int64_t count) {
  std::vector<int64_t> counts;
  if (collective == Collective::kAllToAll) {
    const int64_t unit = (count + 3 * n - 1) / (3 * n);
    for (int a = 0; a < n; ++a) {
      for (int b = 0; b < n; ++b) counts.push_back((a + b + a * b) % 4 * unit);
    }
    return counts;
  }
  int64_t left = count;
  for (int rank = 0; rank < n; ++rank) {
    const int64_t part = rank + 1 == n ? left : std::min(left, count * ((rank * 5 + 3) % 7) / (3 * n));
    counts.push_back(part);
    left -= part;
  }
  return counts;
}

struct World {
  int n;
  const Placement& placement;
};

bool possible(const AlgorithmInfo& info, const ConformanceCase& c, const World& world) {
  const auto& [n, placement] = world;
  if (c.uneven && !has_counts(c.collective)) return false;
  if (c.collective == Collective::kBarrier && (c.count > 0 || c.in_place)) return false;
  const bool exchange = c.collective == Collective::kAllToAll && c.in_place;
  if (exchange && !c.uneven && c.count % n != 0) return false;
  CollectiveRequest request = request_of(header_of(c, 0, n), placement.hosts.empty());
  request.hosts = placement.hosts;
  request.grid = placement.grid;
  return why_not(info, request).empty();
}

struct TypeAndOp {
  DType dtype;
  ReduceOp op;
};

std::vector<TypeAndOp> types_of(Collective collective) {
  std::vector<TypeAndOp> types;
  for (DType dtype : kAllDTypes) {
    if (!is_reduction(collective)) types.push_back({dtype, ReduceOp::kSum});
    for (ReduceOp op : kReduceOps) {
      if (is_reduction(collective) && supports(op, dtype)) types.push_back({dtype, op});
    }
  }
  return types;
}

std::vector<int64_t> counts_of(int n) {
  std::set<int64_t> counts = {0, 1, n - 1, n, n + 1, 1000, 65537};
  return {counts.begin(), counts.end()};
}

template <typename Visit>
void each_place(const World& world, Visit&& visit) {
  for (const AlgorithmInfo& info : every_algorithm()) {
    for (const int64_t count : counts_of(world.n)) {
      for (const bool uneven : {false, true}) {
        for (const bool in_place : {false, true}) {
          ConformanceCase c;
          c.collective = info.collective, c.algorithm = info.name;
          c.count = count, c.uneven = uneven, c.in_place = in_place;
          if (possible(info, c, world)) visit(info, c);
        }
      }
    }
  }
}

// Keeps a case only where it brings a pair of values together for the first time.
std::vector<ConformanceCase> pairwise(std::vector<ConformanceCase> all) {
  std::shuffle(all.begin(), all.end(), std::mt19937_64(2));
  std::set<std::tuple<int, int, int64_t, int64_t>> seen;
  std::vector<ConformanceCase> kept;
  for (const ConformanceCase& c : all) {
    const int64_t algorithm =
        static_cast<int64_t>(std::hash<std::string_view>()(c.algorithm) * 31 + static_cast<size_t>(c.collective));
    const std::array<int64_t, 7> values = {algorithm,
                                           c.count,
                                           c.uneven,
                                           c.in_place,
                                           c.symmetric,
                                           static_cast<int64_t>(c.dtype),
                                           static_cast<int64_t>(c.op)};
    bool fresh = false;
    for (int i = 0; i < 7; ++i) {
      for (int j = 0; j < i; ++j)
        fresh |= seen.insert({i, j, values[static_cast<size_t>(i)], values[static_cast<size_t>(j)]}).second;
    }
    if (fresh) kept.push_back(c);
  }
  return kept;
}

comm::CollectiveCall call_of(const ConformanceCase& c, const Schedule& h, std::byte* in, std::byte* out) {
  comm::CollectiveCall call;
  call.request = request_of(h, true);
  call.op = c.op;
  call.reduces = is_reduction(c.collective);
  call.algorithm = c.algorithm;
  call.input_bytes = space_size(h, h.self, Space::kInput) * size_of(h.dtype);
  call.output_bytes = space_size(h, h.self, Space::kOutput) * size_of(h.dtype);
  call.input = call.input_bytes > 0 ? in : nullptr;
  call.output = call.output_bytes > 0 ? out : nullptr;
  return call;
}

struct Lane {  // one group, and the memory of its operation
  Communicator group;
  std::array<SymmetricMemory, 2> shared = {};
  std::array<std::vector<std::byte>, 2> ordinary = {};
  explicit Lane(Communicator made) : group(std::move(made)) {
    for (auto& memory : shared) memory = group.allocate_symmetric(kLaneBytes);
    for (auto& memory : ordinary) memory.resize(kLaneBytes);
  }
  std::byte* memory(size_t index, bool symmetric) {
    return symmetric ? static_cast<std::byte*>(shared[index].data()) : ordinary[index].data();
  }
};

[[noreturn]] void fail(const Communicator& comm, const ConformanceCase& c, const std::string& what) {
  throw std::runtime_error(describe(c) + " on rank " + std::to_string(comm.rank()) + " of " +
                           std::to_string(comm.size()) + ": " + what);
}

void guard(std::byte* out, int64_t bytes) { std::memset(out + bytes, 0x77, kGuard); }
bool guarded(const std::byte* out, int64_t bytes) {
  return std::all_of(out + bytes, out + bytes + kGuard, [](std::byte b) { return b == std::byte{0x77}; });
}

void run_three(std::array<Lane*, 3> lanes, std::span<const ConformanceCase> cases, size_t rotation) {
  std::array<std::shared_ptr<comm::PendingOp>, 3> tasks;
  std::array<Schedule, 3> headers;
  std::array<std::byte*, 3> in, out;
  for (size_t k = 0; k < cases.size(); ++k) {
    const ConformanceCase& c = cases[k];
    headers[k] = header_of(c, lanes[k]->group.rank(), lanes[k]->group.size());
    in[k] = lanes[k]->memory(0, c.symmetric), out[k] = lanes[k]->memory(1, c.symmetric);
    ExactOperation(headers[k], c.op, no_factor).fill(in[k], out[k]);
    guard(out[k], space_size(headers[k], headers[k].self, Space::kOutput) * size_of(c.dtype));
  }
  const uint64_t sent_before = lanes[0]->group.bytes_moved();
  for (size_t i = 0; i < cases.size(); ++i) {
    const size_t k = (i + rotation) % cases.size();
    comm::GroupState& group = comm::CommunicatorTestAccess::group(lanes[k]->group);
    comm::CollectiveCall call = call_of(cases[k], headers[k], in[k], out[k]);
    tasks[k] = std::make_shared<comm::PendingOp>();
    group.prepare(*tasks[k], call);
    group.engine().start(tasks[k]);
  }
  uint64_t sent = 0;  // by the schedules; the group counts what has moved
  for (size_t k = 0; k < cases.size(); ++k) {
    comm::CommunicatorTestAccess::group(lanes[k]->group).engine().wait(*tasks[k]);
    sent += static_cast<uint64_t>(bytes_sent(tasks[k]->call.program->schedule()));
    const int64_t bytes = space_size(headers[k], headers[k].self, Space::kOutput) * size_of(cases[k].dtype);
    if (!ExactOperation(headers[k], cases[k].op, no_factor).right(out[k])) fail(lanes[k]->group, cases[k], "wrong");
    if (!guarded(out[k], bytes)) fail(lanes[k]->group, cases[k], "writes beyond its output");
  }
  const uint64_t counted = lanes[0]->group.bytes_moved() - sent_before;
  if (counted != sent) {
    fail(lanes[0]->group, cases[0],
         "and those beside it: schedules of " + std::to_string(sent) + " bytes have moved " + std::to_string(counted));
  }
}

// By the calling thread, until it is done.
void run_alone(Communicator& comm, const ConformanceCase& c, const Schedule& header, std::byte* in, std::byte* out) {
  comm::GroupState& group = comm::CommunicatorTestAccess::group(comm);
  comm::CollectiveCall call = call_of(c, header, in, out);
  comm::PendingOp task;
  group.prepare(task, call);
  group.engine().run(task);
}

}  // namespace

Schedule header_of(const ConformanceCase& c, Rank self, int n) {
  Schedule h;
  h.collective = c.collective;
  h.self = self;
  h.num_ranks = n;
  h.root = has_root(c.collective) ? c.root : -1;
  h.dtype = c.dtype;
  h.in_place = c.in_place;
  h.elements = c.collective == Collective::kBarrier ? 0 : c.count;
  if (c.uneven) {
    h.counts = uneven_counts(c.collective, n, c.count);
    h.elements = elements_of_counts(c.collective, n, h.counts);
  }
  return h;
}

CollectiveRequest request_of(const Schedule& h, bool one_host) {
  CollectiveRequest request;
  request.collective = h.collective;
  request.num_ranks = h.num_ranks;
  request.root = std::max(0, h.root);
  request.elements = h.elements;
  request.counts = h.counts;
  request.dtype = h.dtype;
  request.in_place = h.in_place;
  request.same_host = request.direct = one_host;
  return request;
}

std::string describe(const ConformanceCase& c) {
  return std::string(collective_name(c.collective)) + " by \"" + std::string(c.algorithm) + "\" of " +
         std::string(dtype_name(c.dtype)) + " x " + std::to_string(c.count) + " " + std::string(reduce_op_name(c.op)) +
         (c.uneven ? ", uneven" : "") + (c.in_place ? ", in place" : "") + (c.symmetric ? ", symmetric" : "") +
         ", root " + std::to_string(c.root);
}

std::vector<ConformanceCase> conformance_cases(int n, Cover cover, const Placement& placement) {
  std::vector<ConformanceCase> cases;
  const bool one_host = placement.hosts.empty();
  size_t number = 0;
  each_place({n, placement}, [&](const AlgorithmInfo& info, ConformanceCase c) {
    const std::vector<TypeAndOp> types = types_of(info.collective);
    ++number;
    c.root = static_cast<Rank>(number) % n;
    c.symmetric = one_host && (info.needs == Needs::kSymmetricMemory || number % 4 == 0);
    if (cover == Cover::kTypes && (c.count != 1000 || c.uneven)) return;
    if (cover == Cover::kRanks) {
      const TypeAndOp& one = types[number % types.size()];
      c.dtype = one.dtype, c.op = one.op;
      cases.push_back(c);
      return;
    }
    for (const TypeAndOp& one : types) {
      c.dtype = one.dtype, c.op = one.op;
      cases.push_back(c);
    }
  });
  return cover == Cover::kPairwise ? pairwise(std::move(cases)) : cases;
}

void run_conformance(Communicator& world, std::span<const ConformanceCase> cases, const Placement& placement) {
  stand_on_grid(world, placement.grid);
  // The same ranks in three orders.
  const int n = world.size();
  Lane straight(world.split(0, world.rank(), "straight")), reverse(world.split(0, -world.rank(), "reverse")),
      turned(world.split(0, (world.rank() + n / 2) % n, "turned"));
  for (size_t i = 0; i < cases.size(); i += 3) {
    run_three({&straight, &reverse, &turned}, cases.subspan(i, std::min<size_t>(3, cases.size() - i)),
              static_cast<size_t>(world.rank()));
  }
  straight.group.barrier(), reverse.group.barrier(), turned.group.barrier();
}

uint64_t hash_of_rounded_sums(Communicator& world, const Placement& placement) {
  stand_on_grid(world, placement.grid);
  Communicator group = world.split(0, world.rank());
  const int n = group.size();
  constexpr int64_t kCount = 20011;
  const bool one_host = placement.hosts.empty();
  SymmetricMemory memory = group.allocate_symmetric(kCount * 4), whole = group.allocate_symmetric(kCount * 4);
  uint64_t all = 0;
  for (const AlgorithmInfo& info : every_algorithm()) {
    ConformanceCase c{.collective = info.collective, .algorithm = info.name, .count = kCount - kCount % n};
    c.in_place = info.collective == Collective::kAllReduce;
    if (!is_reduction(info.collective) || !possible(info, c, {n, placement})) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      c.dtype = dtype, c.symmetric = one_host;
      const Schedule header = header_of(c, group.rank(), n);
      std::byte* in = (c.in_place ? memory : whole).span<std::byte>().data();
      std::mt19937 random(static_cast<unsigned>(group.rank()));
      for (int64_t i = 0; i < c.count; ++i) store(dtype, in, i, static_cast<double>(random()) / 4e9 - 0.3);
      run_alone(group, c, header, in, memory.span<std::byte>().data());
      uint64_t hash = 0xcbf29ce484222325ull;
      const int64_t bytes = space_size(header, header.self, Space::kOutput) * size_of(dtype);
      for (const std::byte byte : memory.span<std::byte>().first(static_cast<size_t>(bytes)))
        hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3ull;
      std::vector<int64_t> hashes(static_cast<size_t>(n));
      group.all_gather(std::vector<int64_t>{static_cast<int64_t>(hash)}, hashes);
      for (int64_t one : hashes) {
        if (info.collective == Collective::kAllReduce && one != hashes[0]) fail(group, c, "ranks hold different bits");
        all = comm::mix(all, static_cast<uint64_t>(one));
      }
    }
  }
  return all;
}

}  // namespace herd::testing_support
