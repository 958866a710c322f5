#include "herd/cli/bench_operation.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/cli/bench_device.h"
#include "herd/comm/context.h"
#include "herd/memory/shared_memory.h"
#include "herd/schedule/schedule_names.h"

namespace herd::cli {
namespace {

constexpr int64_t kTensorAlignment = 64;  // bytes, as libtorch's allocators give them

// These functions give the factor from algorithm to bus bandwidth, as nccl-tests define it.
double once(int) { return 1; }
double all_but_own(int n) { return 1.0 * (n - 1) / n; }
double there_and_back(int n) { return 2.0 * (n - 1) / n; }

// The fields are: name, reduces, rooted, in_place, bus_factor, shape.
const BenchKind kKinds[] = {
    {"all_reduce", true, false, InPlace::kAlways, there_and_back,
     [](int n) {
       return BenchShape{n, n, 1.0 / n};
     }},
    {"all_gather", false, false, InPlace::kAsAsked, all_but_own,
     [](int n) {
       return BenchShape{1, n, 1.0 / n};
     }},
    {"reduce_scatter", true, false, InPlace::kAsAsked, all_but_own,
     [](int n) {
       return BenchShape{n, 1, 1.0 / n};
     }},
    {"broadcast", false, true, InPlace::kAlways, once,
     [](int n) {
       return BenchShape{1, std::max(1, n - 1), 1.0 / n};
     }},
    {"reduce", true, true, InPlace::kAlways, once,
     [](int n) {
       return BenchShape{n, 1, 1.0 / n};
     }},
    {"gather", false, true, InPlace::kNever, all_but_own,
     [](int n) {
       return BenchShape{1, 1, 1.0 / n};
     }},
    {"scatter", false, true, InPlace::kNever, all_but_own,
     [](int n) {
       return BenchShape{1, 1, 1.0 / n};
     }},
    {"all_to_all", false, false, InPlace::kAsAsked, all_but_own, [](int) { return BenchShape{}; }},
    {"barrier", false, false, InPlace::kNever, once, [](int) { return BenchShape{}; }},
    {"send", false, false, InPlace::kNever, once, [](int) { return BenchShape{}; }},
};

}  // namespace

const BenchKind& bench_kind(std::string_view op) {
  std::string names;
  for (const BenchKind& kind : kKinds) {
    if (kind.name == op) return kind;
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  throw Error(Code::kBadConfig, "no operation \"" + std::string(op) + "\" to bench; valid: " + names);
}

int64_t least_elements(std::string_view op, int num_ranks) {
  return op == "gather" || op == "scatter" || op == "all_to_all" ? num_ranks : 1;
}

int64_t whole_elements(std::string_view op, int64_t bytes, DType dtype, int num_ranks) {
  if (op == "barrier") return 0;
  const int64_t multiple = least_elements(op, num_ranks);
  return bytes / size_of(dtype) / multiple * multiple;
}

std::vector<std::string_view> bench_kinds() {
  std::vector<std::string_view> names;
  for (const BenchKind& kind : kKinds) names.push_back(kind.name);
  return names;
}

BenchOperation::Memory::Memory(Communicator& comm, int64_t bytes, const BenchCall& call)
    : dtype_(call.dtype), device_(call.device) {
  if (call.device.kind != DeviceKind::kCpu) {
    twin_ = std::make_unique<DeviceTwin>(call.device, bytes);
    data_ = twin_->host();
  } else if (call.symmetric) {
    shared_ = comm.allocate_symmetric(std::max<int64_t>(bytes, 8));
    data_ = static_cast<std::byte*>(shared_.data());
  } else {
    private_.resize(static_cast<size_t>(bytes + kTensorAlignment));
    data_ = private_.data();
    while (reinterpret_cast<uintptr_t>(data_) % kTensorAlignment != 0) ++data_;
  }
}

BenchOperation::Memory::~Memory() = default;

Buffer BenchOperation::Memory::buffer(int64_t first, int64_t count) {
  return {(twin_ != nullptr ? twin_->device() : data_) + first * size_of(dtype_), count, dtype_, device_};
}

void BenchOperation::Memory::write() {
  if (twin_ != nullptr) twin_->write();
}

void BenchOperation::Memory::read() {
  if (twin_ != nullptr) twin_->read();
}

BenchOperation::BenchOperation(Communicator& comm, const BenchCall& call)
    : comm_(comm),
      call_(call),
      elements_(call.bytes / size_of(call.dtype)),
      in_place_(bench_kind(call.op).in_place == InPlace::kAlways ||
                (bench_kind(call.op).in_place == InPlace::kAsAsked && call.in_place)),
      mine_(part_of(elements_, comm.size(), comm.rank())),
      pattern_(call.dtype, call.reduce, comm.size()),
      whole_(comm, call.bytes, call),
      other_(comm,
             in_place_                 ? 0
             : call.op == "all_to_all" ? call.bytes
                                       : part_of(elements_, comm.size(), 0).size() * size_of(call.dtype),
             call) {
  options_.algorithm = call_.algorithm;
  options_.op = call_.reduce;
  options_.segment_bytes = call_.segment_bytes;
  if (bench_kind(call.op).reduces) options_.factor = BenchPattern::factor(call_.reduce, comm.rank());
}

Buffer BenchOperation::part() {
  return in_place_ ? whole_.buffer(mine_.begin, mine_.size()) : other_.buffer(0, mine_.size());
}

std::byte* BenchOperation::part_on_host() {
  return in_place_ ? whole_.data() + mine_.begin * size_of(call_.dtype) : other_.data();
}

void BenchOperation::rewrite(int repetition) {
  if (call_.op == "all_gather" || call_.op == "gather") {
    pattern_.fill(part_on_host(), mine_.begin, mine_.size(), comm_.rank(), repetition);
  } else {
    pattern_.fill(whole_.data(), 0, elements_, comm_.rank(), repetition);
  }
  whole_.write();
  other_.write();
}

void BenchOperation::read_back() {
  whole_.read();
  other_.read();
}

void BenchOperation::run() {
  if (call_.op == "all_reduce")
    comm_.all_reduce(whole(), options_);
  else if (call_.op == "all_gather")
    comm_.all_gather(part(), whole(), options_);
  else if (call_.op == "reduce_scatter")
    comm_.reduce_scatter(whole(), part(), options_);
  else if (call_.op == "broadcast")
    comm_.broadcast(whole(), call_.root, options_);
  else if (call_.op == "reduce")
    comm_.reduce(whole(), call_.root, options_);
  else if (call_.op == "gather")
    comm_.gather(part(), whole(), call_.root, options_);
  else if (call_.op == "scatter")
    comm_.scatter(whole(), part(), call_.root, options_);
  else if (call_.op == "all_to_all")
    comm_.all_to_all(whole(), in_place_ ? whole() : other_.buffer(0, elements_), options_);
  else if (call_.op == "barrier")
    comm_.barrier(options_);
  else if (comm_.rank() == 0)
    comm_.send(whole(), 1);
  else if (comm_.rank() == 1)
    comm_.receive(whole(), 0);
}

CollectiveRequest BenchOperation::request() const {
  CollectiveRequest request;
  request.collective = parse_collective(call_.op);
  request.self = comm_.rank();
  request.num_ranks = comm_.size();
  request.elements = call_.op == "barrier" ? 0 : elements_;
  request.dtype = call_.dtype;
  request.root = bench_kind(call_.op).rooted ? call_.root : 0;
  request.segment_bytes = call_.segment_bytes;
  request.in_place = in_place_;
  request.same_host = true;
  for (Rank peer = 0; peer < comm_.size(); ++peer) {
    request.same_host &= comm::CommunicatorTestAccess::group(comm_).channel().maps(peer);
  }
  request.direct = request.same_host && call_.symmetric;
  return request;
}

int64_t BenchOperation::wrong(int repetition) {
  const std::byte* at = whole_.data();
  const std::byte* mine = part_on_host();
  const bool root = comm_.rank() == call_.root;
  if (call_.op == "all_reduce" || (call_.op == "reduce" && root)) {
    return pattern_.wrong_result(at, 0, elements_, repetition);
  }
  if (call_.op == "reduce_scatter") return pattern_.wrong_result(mine, mine_.begin, mine_.size(), repetition);
  if (call_.op == "broadcast") return pattern_.wrong_input(at, 0, elements_, call_.root, repetition);
  if (call_.op == "send" && comm_.rank() == 1) return pattern_.wrong_input(at, 0, elements_, 0, repetition);
  if (call_.op == "scatter") return pattern_.wrong_input(mine, mine_.begin, mine_.size(), call_.root, repetition);
  if (call_.op == "all_gather" || (call_.op == "gather" && root)) return wrong_parts(at, false, repetition);
  return call_.op == "all_to_all" ? wrong_parts(in_place_ ? at : other_.data(), true, repetition) : 0;
}

int64_t BenchOperation::wrong_parts(const std::byte* at, bool exchanged, int repetition) const {
  int64_t wrong = 0;
  for (Rank owner = 0; owner < comm_.size(); ++owner) {
    const Range place = part_of(elements_, comm_.size(), owner);
    const int64_t first = exchanged ? mine_.begin : place.begin;  // the first element in the numbering of `owner`
    wrong += pattern_.wrong_input(at + place.begin * size_of(call_.dtype), first, place.size(), owner, repetition);
  }
  return wrong;
}

}  // namespace herd::cli
