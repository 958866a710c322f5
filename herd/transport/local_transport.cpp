#include "herd/transport/local_transport.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <numeric>
#include <optional>
#include <utility>

#include "herd/base/check.h"
#include "herd/transport/local_channel.h"

namespace herd::transport {
namespace {

// A verdict begins with one of these where a member is gone, did not come in time, or asks for another size.
const std::string kLostPrefix = "lost: ", kLatePrefix = "late: ", kDifferPrefix = "differ: ";
constexpr std::chrono::seconds kVerdictGrace{1};  // how much longer than the leader members wait for the verdict

constexpr uint32_t kOwnDoorbell = 0xffffffff;
constexpr uint32_t kYieldsPerLook = 32;  // yields of the core between two looks at who else waits on it

// Gives each member a part of one shared memory; parts lie `stride` bytes apart.
class LocalRegion final : public SharedRegion {
 public:
  LocalRegion(std::shared_ptr<SharedMemory> memory, int64_t stride, int64_t bytes)
      : memory_(std::move(memory)), stride_(stride), bytes_(bytes) {}
  std::byte* of(int member) const override { return memory_->data() + member * stride_; }
  int64_t bytes() const override { return bytes_; }
  void commit(int member, int64_t begin, int64_t bytes) override { memory_->commit(member * stride_ + begin, bytes); }

 private:
  std::shared_ptr<SharedMemory> memory_;
  int64_t stride_, bytes_;
};

}  // namespace

std::string sizes_differ(const std::string& key, Rank a, const std::string& bytes_a, Rank b,
                         const std::string& bytes_b) {
  return "shared memory \"" + key + "\": rank " + std::to_string(a) + " asks for " + bytes_a + " bytes, rank " +
         std::to_string(b) + " for " + bytes_b + "\n  fix: all members ask for the same";
}

LocalTransport::LocalTransport(std::unique_ptr<Courier> courier, SteadyTime deadline)
    : courier_(std::move(courier)), gone_(static_cast<size_t>(courier_->size())) {
  std::vector<Rank> everyone(static_cast<size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  shared_states_ = allocate("doorbells", everyone, sizeof(SharedState), deadline);
  share_doorbells(deadline);
  watch_peers();
  std::vector<const CoreWord*> cores;
  for (Rank peer = 0; peer < size(); ++peer) cores.push_back(&doorbell_word(peer).core);
  spread_ = CoreSpread(&doorbell_word(rank()).core, std::move(cores));
}

LocalTransport::~LocalTransport() {
  courier_.reset();
  for (Doorbell& doorbell : doorbells_) doorbell.wake();  // a peer that waits for this rank looks again
  if (epoll_ >= 0) close(epoll_);
  for (int descriptor : descriptors_) {
    if (descriptor >= 0) close(descriptor);
  }
}

void LocalTransport::share_doorbells(SteadyTime deadline) {
  descriptors_.assign(static_cast<size_t>(size()), -1);
  const int own_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (own_descriptor < 0) throw_errno(Code::kStorage, "create a doorbell (eventfd)", errno);
  descriptors_[static_cast<size_t>(rank())] = own_descriptor;
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer != rank()) courier_->send(peer, "doorbell", {.descriptor = own_descriptor});
  }
  for (Rank peer = 0; peer < size(); ++peer) {
    int& descriptor = descriptors_[static_cast<size_t>(peer)];
    if (peer != rank()) descriptor = courier_->receive(peer, "doorbell", deadline).descriptor;
    doorbells_.emplace_back(&doorbell_word(peer), descriptor);
  }
}

void LocalTransport::watch_peers() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) throw_errno(Code::kStorage, "create an epoll descriptor", errno);
  const auto watch = [&](int descriptor, uint32_t id) {
    epoll_event event = {};
    event.events = id == kOwnDoorbell ? EPOLLIN : courier_->exit_events(static_cast<Rank>(id));
    event.data.u32 = id;
    if (descriptor >= 0 && epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0) {
      throw_errno(Code::kStorage, "watch a peer", errno);
    }
  };
  watch(own_doorbell().descriptor(), kOwnDoorbell);
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer != rank()) watch(courier_->exit_descriptor(peer), static_cast<uint32_t>(peer));
  }
}

LocalTransport::SharedState& LocalTransport::shared_state(Rank peer) {
  return *reinterpret_cast<SharedState*>(shared_states_->of(peer));
}

void LocalTransport::set_activity(std::string_view activity) {
  std::lock_guard lock(activity_mutex_);
  shared_state(rank()).activity.write(activity);
}

std::string LocalTransport::activity_of(Rank peer) { return shared_state(peer).activity.newest(); }

void LocalTransport::yield_core(bool oversubscribed) {
  if (oversubscribed && ++yields_ % kYieldsPerLook == 0) spread_.rebalance();
  sched_yield();
}

void LocalTransport::sleep_until(SteadyTime deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  epoll_event events[8];
  const int count = epoll_wait(epoll_, events, 8, static_cast<int>(std::clamp<int64_t>(left, 0, 3600'000)));
  cancel_sleep();
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u32 == kOwnDoorbell) {
      own_doorbell().drain();
    } else {  // the peer is gone; is_gone() says so from now on, so that it is watched no more
      const auto peer = events[i].data.u32;
      epoll_ctl(epoll_, EPOLL_CTL_DEL, courier_->exit_descriptor(static_cast<Rank>(peer)), nullptr);
      gone_[peer].store(true);
      doorbell_word(static_cast<Rank>(peer)).core.store(0, std::memory_order_relaxed);  // it waits on no core
    }
  }
}

bool LocalTransport::is_gone(Rank peer) {
  if (courier_->exit_descriptor(peer) >= 0) return gone_[static_cast<size_t>(peer)].load();
  return peer != rank() && courier_->state(peer) == PeerState::kGone;
}

std::shared_ptr<SharedRegion> LocalTransport::allocate(const std::string& key, const std::vector<Rank>& members,
                                                       int64_t bytes, SteadyTime deadline) {
  return allocate(key, members, bytes, bytes, deadline);
}

std::shared_ptr<SharedRegion> LocalTransport::allocate(const std::string& key, const std::vector<Rank>& members,
                                                       int64_t bytes, int64_t real_bytes, SteadyTime deadline) {
  const auto self = std::find(members.begin(), members.end(), rank());
  HERD_CHECK(self != members.end(), "a region is opened by its members only");
  const Rank leader = members.front();
  const int64_t index = self - members.begin();
  const int64_t whole_pages = round_up(std::max<int64_t>(bytes, 1), kPageBytes);
  // A page lies between the parts: memory is a third slower where streams of a kernel lie exactly 2^28 bytes apart.
  const int64_t stride = whole_pages + kPageBytes;
  const int64_t total = stride * static_cast<int64_t>(members.size());
  Parcel parcel;
  if (rank() == leader) {
    try {
      parcel.memory = std::make_shared<SharedMemory>(SharedMemory::create("herd:" + key, total));
      parcel.text = std::to_string(bytes);
    } catch (const Error& error) {
      parcel.text = error.message();
    }
    for (size_t i = 1; i < members.size(); ++i) {
      try {
        courier_->send(members[i], key + "/memory", parcel);
      } catch (const Error&) {  // the member is gone, and the others hear it below
      }
    }
  } else {
    parcel = courier_->receive(leader, key + "/memory", deadline);
  }
  const std::string leader_bytes = parcel.memory == nullptr ? "" : std::exchange(parcel.text, "");
  if (parcel.memory != nullptr && leader_bytes != std::to_string(bytes)) {
    parcel.text = kDifferPrefix + sizes_differ(key, rank(), std::to_string(bytes), leader, leader_bytes);
  } else if (parcel.memory != nullptr) {
    try {
      parcel.memory->commit(index * stride, real_bytes < bytes ? real_bytes : stride);
    } catch (const Error& error) {
      parcel.text = "rank " + std::to_string(rank()) + ": " + error.message();
    }
  }
  // All members succeed or none does.
  std::string verdict = parcel.text;
  if (rank() == leader) {
    std::optional<Error> lost;  // the others wait for the verdict, not for who is lost
    for (size_t i = 1; i < members.size(); ++i) {
      try {
        const std::string reported = courier_->receive(members[i], key + "/done", deadline).text;
        if (verdict.empty()) verdict = reported;
      } catch (const Error& error) {
        if (!lost) lost = error;
      }
    }
    if (lost) verdict = (lost->code() == Code::kTimeout ? kLatePrefix : kLostPrefix) + lost->message();
    for (size_t i = 1; i < members.size(); ++i) {
      try {
        courier_->send(members[i], key + "/verdict", {.text = verdict});
      } catch (const Error& error) {
        if (!lost) lost = error;
      }
    }
    if (lost) throw *lost;
  } else {
    courier_->send(leader, key + "/done", {.text = parcel.text});
    verdict = courier_->receive(leader, key + "/verdict", deadline + kVerdictGrace).text;
  }
  if (verdict.starts_with(kLatePrefix)) throw Error(Code::kTimeout, verdict.substr(kLatePrefix.size()));
  if (verdict.starts_with(kLostPrefix)) throw Error(Code::kPeerLost, verdict.substr(kLostPrefix.size()));
  if (verdict.starts_with(kDifferPrefix)) throw Error(Code::kBadConfig, verdict.substr(kDifferPrefix.size()));
  if (!verdict.empty()) throw Error(Code::kStorage, verdict);
  if (courier_->name() == "shm") parcel.memory->close_descriptor();
  return std::make_shared<LocalRegion>(std::move(parcel.memory), stride, bytes);
}

std::unique_ptr<Channel> LocalTransport::open_channel(const std::string& key, const std::vector<Rank>& members,
                                                      SteadyTime deadline) {
  return open_local(key, members, deadline);
}

std::unique_ptr<LocalChannel> LocalTransport::open_local(const std::string& key, const std::vector<Rank>& members,
                                                         SteadyTime deadline) {
  const LocalLayout layout(static_cast<int>(members.size()));
  const bool can_wait = SharedMemory::commits_without_descriptor();  // else all of it is real from the start
  std::shared_ptr<SharedRegion> region =
      allocate(key, members, layout.total, can_wait ? layout.rings : layout.total, deadline);
  std::vector<Doorbell> doorbells;
  for (Rank member : members) doorbells.push_back(doorbells_[static_cast<size_t>(member)]);
  const auto self = static_cast<Rank>(std::find(members.begin(), members.end(), rank()) - members.begin());
  return std::make_unique<LocalChannel>(self, std::move(region), std::move(doorbells));
}

}  // namespace herd::transport
