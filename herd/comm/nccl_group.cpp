#include "herd/comm/nccl_group.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "herd/base/error.h"
#include "herd/schedule/message_layout.h"

namespace herd::comm {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr int kNcclBytes = 1;  // ncclUint8

// Returns ncclDataType_t; nothing where NCCL can't reduce the type.
std::optional<int> nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return 0;
    case DType::kU8:
      return 1;
    case DType::kI32:
      return 2;
    case DType::kU32:
      return 3;
    case DType::kI64:
      return 4;
    case DType::kU64:
      return 5;
    case DType::kF16:
      return 6;
    case DType::kF32:
      return 7;
    case DType::kF64:
      return 8;
    case DType::kBF16:
      return 9;
    default:
      return std::nullopt;
  }
}

// Returns ncclRedOp_t.
std::optional<int> nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return 0;
    case ReduceOp::kProduct:
      return 1;
    case ReduceOp::kMax:
      return 2;
    case ReduceOp::kMin:
      return 3;
    case ReduceOp::kAverage:
      return 4;
    default:
      return std::nullopt;
  }
}

}  // namespace

// The barrier before an operation, and its launch.
class NcclGroup::Launch final : public DeviceSteps {
 public:
  Launch(std::shared_ptr<NcclGroup> group, DeviceCollective collective)
      : group_(std::move(group)), collective_(std::move(collective)), layout_(collective_.header) {}

  bool load() override { return true; }
  bool stored() override { return done_->load(std::memory_order_acquire); }
  bool needs_peers() const override { return true; }
  void store() override {
    NcclGroup& g = *group_;
    const auto current = g.driver_.make_current(g.device_.index);
    if (collective_.header.collective == Collective::kAllToAll && collective_.in == collective_.out) take_copy();
    for (const DeviceEventPtr& event : collective_.before) event->hold(g.stream_);
    g.check(g.library_.group_start(), "ncclGroupStart");
    enqueue();
    g.check(g.library_.group_end(), "ncclGroupEnd");
    g.await_launch("a launch");
    g.driver_.call(g.device_.index, g.stream_, [done = done_, transport = g.transport_] {
      done->store(true, std::memory_order_release);
      transport->wake();
    });
  }

 private:
  void enqueue() {
    NcclGroup& g = *group_;
    const NcclLibrary& nccl = g.library_;
    const Schedule& h = collective_.header;
    const int64_t element = size_of(h.dtype);
    const std::byte* in = collective_.in;
    std::byte* out = collective_.out;
    const auto whole = static_cast<size_t>(h.elements);
    const int type = nccl_type(h.dtype).value_or(kNcclBytes), op = nccl_op(collective_.op).value_or(0);
    const auto send = [&](Rank to, Range range) {
      if (range.size() > 0) {
        g.check(nccl.send(in + range.begin * element, static_cast<size_t>(range.size() * element), kNcclBytes, to,
                          g.comm_, g.stream_),
                "ncclSend");
      }
    };
    const auto receive = [&](Rank from, Range range) {
      if (range.size() > 0) {
        g.check(nccl.receive(out + range.begin * element, static_cast<size_t>(range.size() * element), kNcclBytes, from,
                             g.comm_, g.stream_),
                "ncclRecv");
      }
    };
    const auto own = [&](Range to, int64_t from) {
      if (out + to.begin * element != in + from * element)
        g.driver_.copy(out + to.begin * element, in + from * element, to.size() * element, g.device_.index, g.stream_);
    };
    const Range mine = h.collective == Collective::kAllToAll ? Range{0, 0} : layout_.part(g.rank_);
    switch (h.collective) {
      case Collective::kAllReduce:
        return g.check(nccl.all_reduce(out, out, whole, type, op, g.comm_, g.stream_), "ncclAllReduce");
      case Collective::kBroadcast:
        return g.check(
            nccl.broadcast(out, out, whole * static_cast<size_t>(element), kNcclBytes, h.root, g.comm_, g.stream_),
            "ncclBroadcast");
      case Collective::kReduce:
        return g.check(nccl.reduce(out, out, whole, type, op, h.root, g.comm_, g.stream_), "ncclReduce");
      case Collective::kAllGather:
        if (equal_parts()) {
          return g.check(
              nccl.all_gather(in, out, static_cast<size_t>(mine.size() * element), kNcclBytes, g.comm_, g.stream_),
              "ncclAllGather");
        }
        for (Rank peer = 0; peer < g.num_ranks_; ++peer) {
          if (peer == g.rank_) continue;
          send(peer, {0, mine.size()});
          receive(peer, layout_.part(peer));
        }
        return own(mine, 0);
      case Collective::kReduceScatter:
        if (equal_parts()) {
          return g.check(nccl.reduce_scatter(in, out, static_cast<size_t>(mine.size()), type, op, g.comm_, g.stream_),
                         "ncclReduceScatter");
        }
        for (Rank peer = 0; peer < g.num_ranks_; ++peer) {
          const Range part = layout_.part(peer);
          if (part.size() == 0) continue;
          g.check(nccl.reduce(in + part.begin * element, peer == g.rank_ ? out : nullptr,
                              static_cast<size_t>(part.size()), type, op, peer, g.comm_, g.stream_),
                  "ncclReduce");
        }
        return;
      case Collective::kGather:
        if (g.rank_ != h.root) return send(h.root, {0, mine.size()});
        for (Rank peer = 0; peer < g.num_ranks_; ++peer) {
          if (peer != g.rank_) receive(peer, layout_.part(peer));
        }
        return own(mine, 0);
      case Collective::kScatter:
        if (g.rank_ != h.root) return receive(h.root, {0, mine.size()});
        for (Rank peer = 0; peer < g.num_ranks_; ++peer) {
          if (peer != g.rank_) send(peer, layout_.part(peer));
        }
        return own({0, mine.size()}, mine.begin);
      case Collective::kAllToAll:
        for (Rank peer = 0; peer < g.num_ranks_; ++peer) {
          if (peer == g.rank_) continue;
          send(peer, layout_.sent(g.rank_, peer));
          receive(peer, layout_.received(peer, g.rank_));
        }
        return own(layout_.received(g.rank_, g.rank_), layout_.sent(g.rank_, g.rank_).begin);
      default:
        return;
    }
  }

  // NCCL may not receive where it still sends from.
  void take_copy() {
    NcclGroup& g = *group_;
    const int64_t bytes = layout_.num_sent(g.rank_) * size_of(collective_.header.dtype);
    if (bytes == 0) return;
    for (const DeviceEventPtr& event : collective_.before) event->hold(g.stream_);
    std::byte* copy = g.scratch(bytes);
    g.driver_.copy(copy, collective_.in, bytes, g.device_.index, g.stream_);
    collective_.in = copy;
  }

  bool equal_parts() const {
    for (Rank rank = 1; rank < group_->num_ranks_; ++rank) {
      if (layout_.part(rank).size() != layout_.part(0).size()) return false;
    }
    return true;
  }

  std::shared_ptr<NcclGroup> group_;
  DeviceCollective collective_;
  MessageLayout layout_;
  std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false);
};

NcclGroup::NcclGroup(Device device, Rank rank, int num_ranks, std::shared_ptr<transport::Transport> transport)
    : library_(*nccl_library()),
      driver_(device_driver(device.kind)),
      device_(device),
      rank_(rank),
      num_ranks_(num_ranks),
      transport_(std::move(transport)),
      stream_(driver_.create_stream(device.index)) {}

NcclGroup::~NcclGroup() {
  if (comm_ != nullptr) failed_ ? library_.abort(comm_) : library_.destroy(comm_);
  if (failed_) return;
  if (scratch_ != nullptr) driver_.free_shared(scratch_, device_.index);
  driver_.destroy_stream(device_.index, stream_);
}

NcclUniqueId NcclGroup::make_id() {
  NcclUniqueId id{};
  const NcclLibrary* library = nccl_library();
  const int result = library->get_unique_id(&id);
  if (result != kNcclSuccess)
    throw Error(Code::kBadConfig, std::string("ncclGetUniqueId: ") + library->error_string(result));
  return id;
}

std::string NcclGroup::join(const NcclUniqueId& id, SteadyTime deadline) {
  NcclConfig config;
  config.blocking = 0;
  const auto current = driver_.make_current(device_.index);
  int result = library_.init_rank_config(&comm_, num_ranks_, id, rank_, &config);
  while (result == kNcclSuccess || result == kNcclInProgress) {
    int state = kNcclSuccess;
    result = library_.get_async_error(comm_, &state);
    if (result == kNcclSuccess && state == kNcclSuccess) return "";
    if (result == kNcclSuccess) result = state;
    if (result == kNcclInProgress && steady_clock::now() >= deadline) {
      failed_ = true;
      return "NCCL's communicator was not there in time";
    }
    std::this_thread::sleep_for(1ms);
  }
  failed_ = true;
  return std::string("ncclCommInitRankConfig: ") + library_.error_string(result) + ", " + library_.last_error(comm_);
}

bool NcclGroup::supports(Collective, DType dtype, ReduceOp op, bool reduces) const {
  return !reduces || (nccl_type(dtype) && nccl_op(op));
}

std::vector<std::shared_ptr<DeviceSteps>> NcclGroup::steps_of(DeviceCollective collective) {
  return {std::make_shared<Launch>(shared_from_this(), std::move(collective))};
}

std::byte* NcclGroup::scratch(int64_t bytes) {
  if (bytes > scratch_bytes_) {
    if (scratch_ != nullptr) driver_.free_shared(scratch_, device_.index);
    scratch_ = static_cast<std::byte*>(driver_.allocate_shared(bytes, device_.index));
    scratch_bytes_ = bytes;
  }
  return scratch_;
}

void NcclGroup::check(int result, const char* what) {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  throw Error(Code::kBadConfig,
              std::string(what) + ": " + library_.error_string(result) + ", " + library_.last_error(comm_));
}

void NcclGroup::await_launch(const char* what) {
  const auto until = steady_clock::now() + 30s;
  int state = kNcclInProgress;
  while (state == kNcclInProgress && steady_clock::now() < until) {
    check(library_.get_async_error(comm_, &state), what);
    if (state == kNcclInProgress) std::this_thread::yield();
  }
  check(state, what);
  if (state == kNcclInProgress) throw Error(Code::kTimeout, std::string("NCCL did not end ") + what + " in 30 s");
}

void NcclGroup::drain() {
  const DeviceEventPtr reached = driver_.record(device_.index, stream_);
  for (int i = 0; i < 20000 && !reached->done(); ++i) std::this_thread::sleep_for(100us);
  failed_ = !reached->done();
}

// Ends the kernels that wait for peers which will not come.
void NcclGroup::leave_open() {
  failed_ = true;
  if (comm_ != nullptr) library_.abort(std::exchange(comm_, nullptr));
}

}  // namespace herd::comm
