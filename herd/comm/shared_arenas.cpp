#include "herd/comm/shared_arenas.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "herd/base/error.h"
#include "herd/kernels/device_kernels.h"

namespace herd::comm {
namespace {

constexpr int64_t kSlotAlignment = 256;  // bytes
constexpr int64_t kSliceAlignment = 64;  // elements, so that kernels read 16 bytes at a time

std::string_view text_of(const SharedArenas::Offer& offer) { return offer.refusal.data(); }

int64_t longest_block(const Schedule& header, const MessageLayout& layout) {
  if (header.collective != Collective::kAllToAll) return layout.longest_part();
  int64_t longest = 0;
  for (Rank from = 0; from < header.num_ranks; ++from) {
    for (Rank to = 0; to < header.num_ranks; ++to) longest = std::max(longest, layout.sent(from, to).size());
  }
  return longest;
}

}  // namespace

// One operation, in its windows.
class SharedArenas::Run {
 public:
  Run(std::shared_ptr<SharedArenas> arenas, DeviceCollective operation)
      : arenas_(std::move(arenas)),
        operation_(std::move(operation)),
        layout_(operation_.header),
        n_(operation_.header.num_ranks),
        self_(operation_.header.self),
        element_(size_of(operation_.header.dtype)) {
    const Collective collective = operation_.header.collective;
    two_steps_ = collective == Collective::kAllReduce && n_ > 1 && operation_.header.elements * element_ > kOneStep;
    const bool has_slots = two_steps_ || collective == Collective::kReduceScatter ||
                           collective == Collective::kAllToAll || collective == Collective::kScatter;
    const int64_t slots = has_slots ? n_ : 1;
    slot_bytes_ = arenas_->half_bytes_ / slots / kSlotAlignment * kSlotAlignment;
    const int64_t in_slot = slot_bytes_ / element_ / kSliceAlignment * kSliceAlignment;
    const bool whole = collective == Collective::kAllReduce || collective == Collective::kBroadcast ||
                       collective == Collective::kReduce;
    window_ = two_steps_ ? in_slot * n_ : in_slot;
    const int64_t length = whole ? operation_.header.elements : longest_block(operation_.header, layout_);
    num_windows_ = std::max<int64_t>(1, (length + window_ - 1) / window_);
  }

  int64_t num_windows() const { return num_windows_; }
  bool two_steps() const { return two_steps_; }

  // Copies this rank's contribution into its arena.
  void fill(int64_t window, uint64_t number) {
    SharedArenas& a = *arenas_;
    if (window == 0) {
      for (const DeviceEventPtr& event : operation_.before) event->hold(a.stream_);
    }
    if (number >= 2) hold_for_peers(kRead, number);
    const Schedule& h = operation_.header;
    switch (h.collective) {
      case Collective::kAllReduce:
        if (!two_steps_) {
          copy(slot(self_, number, 0), operation_.out, whole(window));
        } else {
          for (Rank peer = 0; peer < n_; ++peer) {
            if (peer != self_) copy(slot(self_, number, peer), operation_.out, slice(window, peer));
          }
        }
        break;
      case Collective::kBroadcast:
        if (self_ == h.root) copy(slot(self_, number, 0), operation_.out, whole(window));
        break;
      case Collective::kReduce:
        if (self_ != h.root) copy(slot(self_, number, 0), operation_.out, whole(window));
        break;
      case Collective::kAllGather:
      case Collective::kGather:
        if (h.collective == Collective::kAllGather || self_ != h.root)
          copy(slot(self_, number, 0), operation_.in, cut(window, {0, layout_.part(self_).size()}));
        break;
      case Collective::kReduceScatter:
        for (Rank peer = 0; peer < n_; ++peer) {
          if (peer != self_) copy(slot(self_, number, peer), operation_.in, cut(window, layout_.part(peer)));
        }
        break;
      case Collective::kScatter:
        for (Rank peer = 0; peer < n_ && self_ == h.root; ++peer) {
          if (peer != self_) copy(slot(self_, number, peer), operation_.in, cut(window, layout_.part(peer)));
        }
        break;
      case Collective::kAllToAll:
        for (Rank peer = 0; peer < n_; ++peer) {
          if (peer != self_) copy(slot(self_, number, peer), operation_.in, cut(window, layout_.sent(self_, peer)));
        }
        break;
      default:
        break;
    }
    mine(kFilled, number).record(a.stream_);
  }

  // Reduces what the peers have filled. Of an all_reduce in two steps, this rank's slice alone.
  void reduce(int64_t window, uint64_t number) {
    hold_for_peers(kFilled, number);
    const Schedule& h = operation_.header;
    if (h.collective == Collective::kAllReduce && !two_steps_) {
      reduce_range(operation_.out, whole(window), operation_.out, number, 0);
    } else if (h.collective == Collective::kAllReduce) {
      const Range range = slice(window, self_);
      reduce_range(operation_.out, range, operation_.out, number, self_);
      copy(slot(self_, number, self_), operation_.out, range);
      mine(kReduced, number).record(arenas_->stream_);
    } else if (h.collective == Collective::kReduce && self_ == h.root) {
      reduce_range(operation_.out, whole(window), operation_.out, number, 0);
    } else if (h.collective == Collective::kReduceScatter) {
      const Range part = layout_.part(self_);
      const Range range = cut(window, part);
      // The result begins where this rank's part does, whose first element is `part.begin` of the input.
      reduce_range(operation_.in, range, operation_.out - part.begin * element_, number, self_);
    }
  }

  // Copies what is this rank's out of the peers' arenas.
  void fetch(int64_t window, uint64_t number) {
    const Schedule& h = operation_.header;
    if (two_steps_) hold_for_peers(kReduced, number);
    switch (h.collective) {
      case Collective::kAllReduce:
        for (Rank peer = 0; peer < n_ && two_steps_; ++peer) {
          if (peer != self_) copy_out(operation_.out, slice(window, peer), slot(peer, number, peer));
        }
        break;
      case Collective::kBroadcast:
        if (self_ != h.root) copy_out(operation_.out, whole(window), slot(h.root, number, 0));
        break;
      case Collective::kAllGather:
      case Collective::kGather:
        for (Rank peer = 0; peer < n_ && (h.collective == Collective::kAllGather || self_ == h.root); ++peer) {
          const Range range = cut(window, layout_.part(peer));
          if (peer != self_)
            copy_out(operation_.out, range, slot(peer, number, 0));
          else
            copy_own(range, layout_.part(self_).begin, 0);
        }
        break;
      case Collective::kScatter: {
        const Range part = layout_.part(self_);
        const Range range = cut(window, part);
        if (self_ != h.root)
          copy_out(operation_.out - part.begin * element_, range, slot(h.root, number, self_));
        else
          copy_own({range.begin - part.begin, range.end - part.begin}, 0, part.begin);
        break;
      }
      case Collective::kAllToAll:
        for (Rank peer = 0; peer < n_; ++peer) {
          const Range range = cut(window, layout_.received(peer, self_));
          if (peer != self_)
            copy_out(operation_.out, range, slot(peer, number, self_));
          else
            copy_own(range, layout_.received(self_, self_).begin, layout_.sent(self_, self_).begin);
        }
        break;
      default:
        break;
    }
    mine(kRead, number).record(arenas_->stream_);
  }

  void call_when_done() {
    struct Signal {
      std::shared_ptr<std::atomic<bool>> done;
      std::shared_ptr<transport::Transport> transport;
    };
    arenas_->driver_.call(arenas_->device_.index, arenas_->stream_, [signal = Signal{done_, arenas_->transport_}] {
      signal.done->store(true, std::memory_order_release);
      signal.transport->wake();
    });
  }
  bool done() const { return done_->load(std::memory_order_acquire); }

 private:
  Range whole(int64_t window) const { return cut(window, {0, operation_.header.elements}); }
  // Returns what the window holds of a range of the message.
  Range cut(int64_t window, Range range) const {
    return {std::min(range.begin + window * window_, range.end),
            std::min(range.begin + (window + 1) * window_, range.end)};
  }
  // Returns the slice of a rank in a window of an all_reduce.
  Range slice(int64_t window, Rank rank) const {
    const Range all = whole(window);
    const int64_t each = ((all.size() + n_ - 1) / n_ + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
    return {std::min(all.begin + rank * each, all.end), std::min(all.begin + (rank + 1) * each, all.end)};
  }
  std::byte* slot(Rank owner, uint64_t number, int64_t index) const {
    return arenas_->peers_[static_cast<size_t>(owner)].arena + static_cast<int64_t>(number & 1) * arenas_->half_bytes_ +
           index * slot_bytes_;
  }
  SharedDeviceEvent& event_of(Rank rank, Event event, uint64_t number) const {
    return *arenas_->peers_[static_cast<size_t>(rank)].events[static_cast<size_t>(event) + (number & 1)];
  }
  SharedDeviceEvent& mine(Event event, uint64_t number) const { return event_of(self_, event, number); }
  void hold_for_peers(Event event, uint64_t number) {
    for (Rank peer = 0; peer < n_; ++peer) {
      if (peer != self_) event_of(peer, event, number).hold(arenas_->stream_);
    }
  }
  void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
    if (bytes > 0 && to != from) arenas_->driver_.copy(to, from, bytes, arenas_->device_.index, arenas_->stream_);
  }
  void copy(std::byte* to, const std::byte* base, Range range) {
    copy_bytes(to, base + range.begin * element_, range.size() * element_);
  }
  void copy_out(std::byte* base, Range range, const std::byte* from) {
    copy_bytes(base + range.begin * element_, from, range.size() * element_);
  }
  // Copies this rank's own part from its input, where its block begins at in_begin, to the range of its output.
  void copy_own(Range range, int64_t out_begin, int64_t in_begin) {
    copy_bytes(operation_.out + range.begin * element_, operation_.in + (in_begin + range.begin - out_begin) * element_,
               range.size() * element_);
  }
  // Reduces the range of `base` and the slot `index` of all peers to the same range of `to`.
  void reduce_range(const std::byte* base, Range range, std::byte* to, uint64_t number, int64_t index) {
    if (range.size() == 0) return;
    kernels::ReductionCall call;
    call.target = to + range.begin * element_;
    for (Rank rank = 0; rank < n_; ++rank)
      call.sources.push_back(rank == self_ ? base + range.begin * element_ : slot(rank, number, index));
    call.count = range.size();
    call.type = operation_.header.dtype;
    call.op = operation_.op;
    if (operation_.op == ReduceOp::kAverage) call.scale = 1.0 / n_;
    kernels::device_kernels(arenas_->device_.kind).reduce({arenas_->device_.index, arenas_->stream_}, call);
  }

  std::shared_ptr<SharedArenas> arenas_;
  DeviceCollective operation_;
  MessageLayout layout_;
  int n_;
  Rank self_;
  int64_t element_;
  bool two_steps_ = false;
  int64_t slot_bytes_ = 0, window_ = 1, num_windows_ = 1;  // window: elements of the message, or of each part
  std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false);
};

// What a rank does around one barrier of a window.
class SharedArenas::Barrier final : public DeviceSteps {
 public:
  Barrier(std::shared_ptr<Run> run, int64_t window, uint64_t number, bool second)
      : run_(std::move(run)), window_(window), number_(number), second_(second) {}

  bool load() override {
    if (!second_ && !filled_) run_->fill(window_, number_);
    filled_ = true;
    return true;
  }
  void store() override {
    if (!second_) run_->reduce(window_, number_);
    if (!second_ && run_->two_steps()) return;
    run_->fetch(window_, number_);
    ends_ = window_ == run_->num_windows() - 1;
    if (ends_) run_->call_when_done();
  }
  bool stored() override { return !ends_ || run_->done(); }
  bool needs_peers() const override { return true; }

 private:
  std::shared_ptr<Run> run_;
  int64_t window_;
  uint64_t number_;
  bool second_, filled_ = false, ends_ = false;
};

SharedArenas::SharedArenas(Device device, Rank rank, int num_ranks, std::shared_ptr<transport::Transport> transport,
                           int64_t half_bytes)
    : driver_(device_driver(device.kind)),
      device_(device),
      rank_(rank),
      num_ranks_(num_ranks),
      transport_(std::move(transport)),
      half_bytes_(half_bytes),
      peers_(static_cast<size_t>(num_ranks)) {
  try {
    if (num_ranks > kMaxRanks) {
      throw Error(Code::kBadConfig, std::to_string(num_ranks) + " ranks, but at most " + std::to_string(kMaxRanks));
    }
    Peer& self = peers_[static_cast<size_t>(rank)];
    self.arena = static_cast<std::byte*>(driver_.allocate_shared(2 * half_bytes, device.index));
    offer_.handles[0] = driver_.export_shared(self.arena, device.index);
    for (size_t i = 0; i < self.events.size(); ++i) {
      self.events[i] = driver_.make_shared_event(device.index);
      offer_.handles[i + 1] = self.events[i]->handle();
    }
    stream_ = driver_.create_stream(device.index);
  } catch (const Error& error) {
    const std::string text = error.message().empty() ? "it refuses" : error.message();
    std::copy_n(text.data(), std::min(text.size(), offer_.refusal.size() - 1), offer_.refusal.data());
  }
}

std::string SharedArenas::open(std::span<const Offer> offers) {
  for (Rank rank = 0; rank < num_ranks_; ++rank) {
    const Offer& offer = offers[static_cast<size_t>(rank)];
    if (!text_of(offer).empty()) return "rank " + std::to_string(rank) + ": " + std::string(text_of(offer));
  }
  try {
    for (Rank rank = 0; rank < num_ranks_; ++rank) {
      if (rank == rank_) continue;
      Peer& peer = peers_[static_cast<size_t>(rank)];
      const Offer& offer = offers[static_cast<size_t>(rank)];
      peer.arena = static_cast<std::byte*>(driver_.open_shared(offer.handles[0], device_.index));
      for (size_t i = 0; i < peer.events.size(); ++i)
        peer.events[i] = driver_.open_shared_event(offer.handles[i + 1], device_.index);
    }
  } catch (const Error& error) {
    return "rank " + std::to_string(rank_) + ": " + error.message();
  }
  return "";
}

SharedArenas::~SharedArenas() {
  if (leaves_open_) {
    for (Peer& peer : peers_) {
      for (auto& event : peer.events) static_cast<void>(event.release());
    }
    return;
  }
  try {
    for (Rank rank = 0; rank < num_ranks_; ++rank) {
      Peer& peer = peers_[static_cast<size_t>(rank)];
      if (peer.arena == nullptr) continue;
      if (rank == rank_)
        driver_.free_shared(peer.arena, device_.index);
      else
        driver_.close_shared(peer.arena, device_.index);
    }
    if (stream_ != nullptr) driver_.destroy_stream(device_.index, stream_);
  } catch (const std::exception&) {  // the device is lost, and its memory with it
  }
}

std::vector<std::shared_ptr<DeviceSteps>> SharedArenas::steps_of(DeviceCollective collective) {
  const auto run = std::make_shared<Run>(shared_from_this(), std::move(collective));
  std::vector<std::shared_ptr<DeviceSteps>> steps;
  for (int64_t window = 0; window < run->num_windows(); ++window, ++windows_) {
    steps.push_back(std::make_shared<Barrier>(run, window, windows_, false));
    if (run->two_steps()) steps.push_back(std::make_shared<Barrier>(run, window, windows_, true));
  }
  return steps;
}

void SharedArenas::drain() {
  using namespace std::chrono_literals;
  if (windows_ == 0) return;
  for (Rank rank = 0; rank < num_ranks_; ++rank) {
    for (const size_t half : {0, 1}) {
      if (rank != rank_ && windows_ > half) peers_[static_cast<size_t>(rank)].events[kRead + half]->hold(stream_);
    }
  }
  const DeviceEventPtr reached = driver_.record(device_.index, stream_);
  for (int i = 0; i < 20000 && !reached->done(); ++i) std::this_thread::sleep_for(100us);
  if (!reached->done()) leave_open();
}

}  // namespace herd::comm
