#include "herd/transport/cluster_transport.h"

#include <sodium.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/transport/cluster_channel.h"
#include "herd/transport/hosts.h"

namespace herd::transport {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kSilent = 60ms;  // a peer that answers no question for so long counts as stopped
constexpr auto kFarewell = 1s;  // how long nothing may move while peers do not answer a goodbye

// Returns a MAC of the job and two ranks under the secret, which comes from the job's token. 64 bits are enough: nobody
// gets to try that often.
uint64_t key_of(const std::string& secret, const std::string& job, Rank from, Rank to) {
  const std::string text = "herd frame " + std::to_string(from) + " " + std::to_string(to) + " " + job;
  unsigned char mac[16] = {};
  crypto_generichash(mac, sizeof mac, reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     reinterpret_cast<const unsigned char*>(secret.data()), secret.size());
  uint64_t key = 0;
  std::memcpy(&key, mac, sizeof key);
  return key;
}

std::string wire_key(const std::string& secret, const std::string& job) {
  const std::string text = "herd wire " + job;
  std::string key(32, '\0');
  crypto_generichash(reinterpret_cast<unsigned char*>(key.data()), key.size(),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     reinterpret_cast<const unsigned char*>(secret.data()), secret.size());
  return key;
}

// Returns the 64-bit FNV-1a hash of a channel's key.
uint64_t id_of(const std::string& key) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// Maps the parts of a region that belong to ranks of this host.
class ClusterRegion final : public SharedRegion {
 public:
  ClusterRegion(std::shared_ptr<SharedRegion> local, std::vector<int> index)
      : local_(std::move(local)), index_(std::move(index)) {}
  std::byte* of(int member) const override {
    const int index = index_[static_cast<size_t>(member)];
    return index < 0 ? nullptr : local_->of(index);
  }
  int64_t bytes() const override { return local_->bytes(); }

 private:
  std::shared_ptr<SharedRegion> local_;
  std::vector<int> index_;  // of each member in local_; -1 = on another host
};

int new_epoll(std::initializer_list<int> descriptors) {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) throw_errno(Code::kStorage, "create an epoll descriptor", errno);
  for (int descriptor : descriptors) {
    epoll_event event = {};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) {
      throw_errno(Code::kStorage, "watch the network", errno);
    }
  }
  return epoll;
}

}  // namespace

ClusterTransport::ClusterTransport(ClusterOptions options, std::unique_ptr<Exchange> exchange, SteadyTime deadline)
    : options_(std::move(options)), exchange_(std::move(exchange)), peers_(options_.host_of.size()) {
  std::vector<Rank> everyone(static_cast<size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  for (Rank peer : everyone) {
    if (shares_host(peer)) host_ranks_.push_back(peer);
    peers_[static_cast<size_t>(peer)].key_to = key_of(options_.secret, options_.job, rank(), peer);
    peers_[static_cast<size_t>(peer)].key_from = key_of(options_.secret, options_.job, peer, rank());
  }
  ranks_of_machine_ = count_ranks_of_machine(everyone, deadline);
  local_ = std::make_unique<LocalTransport>(options_.courier(host_ranks_, deadline), deadline);
  options_.wire.rank = rank();
  options_.wire.size = size();
  options_.wire.key = wire_key(options_.secret, options_.job);
  std::string address, error;
  try {
    wire_ = options_.open_wire ? options_.open_wire(options_.wire) : open_wire(options_.kind, options_.wire);
    address = "+" + wire_->address();
  } catch (const Error& failed) {
    error = failed.message();
    address = "-rank " + std::to_string(rank()) + ": " + error;
  }
  std::vector<std::string> addresses = exchange_->all_gather("wire", everyone, rank(), address, deadline);
  if (!error.empty()) throw Error(Code::kBadConfig, error);
  for (std::string& reply : addresses) {
    if (reply.empty() || reply[0] != '+') throw Error(Code::kBadConfig, reply.empty() ? "no address" : reply.substr(1));
    reply.erase(0, 1);
  }
  const int hosts = 1 + *std::max_element(options_.host_of.begin(), options_.host_of.end());
  name_ = (hosts == size() ? "" : "shm+") + std::string(wire_->name());
  wire_->set_handler(
      [this](const FrameHeader& header, std::span<const std::byte> payload) { on_frame(header, payload); });
  wire_->connect(std::move(addresses));
  std::erase_if(everyone, [this](Rank peer) { return shares_host(peer); });
  presence_ = std::make_unique<Presence>(
      *wire_, rank(), size(), std::move(everyone), [this](Rank to, FrameKind kind) { return stamp(to, 0, kind); },
      [this] { return progress_or_wait(); });
  presence_->join(deadline);
  wire_->stop_listening();  // each rank of another host has sent kHello over its connection
  interrupt_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (interrupt_ < 0) throw_errno(Code::kStorage, "create an eventfd", errno);
  epoll_ = new_epoll({local_->descriptor(), wire_->descriptor()});
  network_epoll_ = new_epoll({interrupt_, wire_->descriptor()});
}

ClusterTransport::~ClusterTransport() {
  presence_->leave(kFarewell);
  for (int descriptor : {epoll_, network_epoll_, interrupt_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

int ClusterTransport::count_ranks_of_machine(const std::vector<Rank>& everyone, SteadyTime deadline) {
  const std::vector<std::string> machines =
      exchange_->all_gather("machine", everyone, rank(), machine_identity(), deadline);
  const std::string& own_machine = machines[static_cast<size_t>(rank())];
  if (own_machine.empty()) return static_cast<int>(host_ranks_.size());
  return static_cast<int>(std::count(machines.begin(), machines.end(), own_machine));
}

bool ClusterTransport::progress_or_wait() {
  if (wire_->progress()) return true;
  wire_->wait(10ms);
  return false;
}

std::vector<Rank> ClusterTransport::local_members(const std::vector<Rank>& members) const {
  std::vector<Rank> local;
  for (Rank member : members) {
    if (!shares_host(member)) continue;
    local.push_back(static_cast<Rank>(std::find(host_ranks_.begin(), host_ranks_.end(), member) - host_ranks_.begin()));
  }
  return local;
}

// All members succeed or none does: what fails on one host fails everywhere, with the same words.
void ClusterTransport::agree(const std::string& key, const std::vector<Rank>& members, const std::string& error,
                             SteadyTime deadline) {
  for (const std::string& reported : exchange_->all_gather(key, members, rank(), error, deadline)) {
    if (!reported.empty()) throw Error(Code::kStorage, reported);
  }
}

std::unique_ptr<Channel> ClusterTransport::open_channel(const std::string& key, const std::vector<Rank>& members,
                                                        SteadyTime deadline) {
  const std::vector<Rank> local = local_members(members);
  if (local.size() == members.size()) return local_->open_channel(key, local, deadline);
  std::unique_ptr<LocalChannel> channel;
  std::string error;
  try {
    channel = local_->open_local(key, local, deadline);
  } catch (const Error& failed) {
    error = failed.message();
  }
  agree(key + "/agree", members, error, deadline);
  return std::make_unique<ClusterChannel>(*this, id_of(key), members, std::move(channel));
}

std::shared_ptr<SharedRegion> ClusterTransport::allocate(const std::string& key, const std::vector<Rank>& members,
                                                         int64_t bytes, SteadyTime deadline) {
  const std::vector<Rank> local = local_members(members);
  if (local.size() == members.size()) return local_->allocate(key, local, bytes, deadline);
  const auto sizes = exchange_->all_gather(key + "/bytes", members, rank(), std::to_string(bytes), deadline);
  for (size_t i = 1; i < sizes.size(); ++i) {
    if (sizes[i] != sizes[0])
      throw Error(Code::kBadConfig, sizes_differ(key, members[i], sizes[i], members[0], sizes[0]));
  }
  std::shared_ptr<SharedRegion> region;
  std::string error;
  try {
    region = local_->allocate(key, local, bytes, deadline);
  } catch (const Error& failed) {
    error = failed.message();
  }
  agree(key + "/agree", members, error, deadline);
  std::vector<int> index;
  int next = 0;
  for (Rank member : members) index.push_back(shares_host(member) ? next++ : -1);
  return std::make_shared<ClusterRegion>(std::move(region), std::move(index));
}

FrameHeader ClusterTransport::stamp(Rank to, uint64_t channel, FrameKind kind) const {
  FrameHeader header;
  header.key = peers_[static_cast<size_t>(to)].key_to;
  header.group = channel;
  header.from = rank();
  header.kind = kind;
  return header;
}

void ClusterTransport::on_frame(const FrameHeader& header, std::span<const std::byte> payload) {
  const bool has_valid_key =
      header.from >= 0 && header.from < size() && header.key == peers_[static_cast<size_t>(header.from)].key_from;
  if (!has_valid_key || shares_host(header.from)) {
    if (!warned_) {
      log_warning("a message over the network that does not know this job's token was dropped (it says rank " +
                  std::to_string(header.from) + "); further ones are dropped in silence");
    }
    warned_ = true;
    return;
  }
  if (header.kind == FrameKind::kHello || header.kind == FrameKind::kBye || header.kind == FrameKind::kAcknowledge) {
    return presence_->on_frame(header);
  }
  if (header.kind == FrameKind::kBoard || header.kind == FrameKind::kLeft) {
    peers_[static_cast<size_t>(header.from)].asked_since = {};
  }
  if (const auto found = channels_.find(header.group); found != channels_.end()) {
    return found->second->on_frame(header.from, header, payload);
  }
  if (const auto closed = closed_.find(header.group); closed != closed_.end()) {
    if (header.kind != FrameKind::kAskBoard) return;
    // These are started, finished, waits_in, step, total_steps and awaits, as a channel sends them.
    const uint64_t position[6] = {closed->second, closed->second, 0, 0, 0, ~uint64_t{0}};
    return wire_->send_copy(header.from, stamp(header.from, header.group, FrameKind::kLeft),
                            std::as_bytes(std::span(position)));
  }
  if (header.kind == FrameKind::kAskBoard) {  // the channel is not open here yet, so nothing has begun
    const uint64_t position[6] = {0, 0, 0, 0, 0, ~uint64_t{0}};
    return wire_->send_copy(header.from, stamp(header.from, header.group, FrameKind::kBoard),
                            std::as_bytes(std::span(position)));
  }
  early_frames_[header.group].push_back({header, {payload.begin(), payload.end()}});
}

void ClusterTransport::add(uint64_t id, ClusterChannel& channel) {
  std::lock_guard lock(mutex_);
  channels_[id] = &channel;
  for (const EarlyFrame& frame : early_frames_[id]) channel.on_frame(frame.header.from, frame.header, frame.payload);
  early_frames_.erase(id);
}

void ClusterTransport::remove(uint64_t id, uint64_t last_finished) {
  channels_.erase(id);
  closed_[id] = last_finished;
}

void ClusterTransport::on_activity(Rank peer, std::string activity) {
  peers_[static_cast<size_t>(peer)].activity = std::move(activity);
}

void ClusterTransport::mark_asked(Rank peer) {
  auto& since = peers_[static_cast<size_t>(peer)].asked_since;
  if (since == steady_clock::time_point{}) since = steady_clock::now();
}

std::chrono::milliseconds ClusterTransport::silent_for(Rank peer) {
  const auto since = peers_[static_cast<size_t>(peer)].asked_since;
  if (since == steady_clock::time_point{}) return 0ms;
  return std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - since);
}

bool ClusterTransport::is_gone(Rank peer) {
  if (shares_host(peer)) return local_->is_gone(local_members({peer})[0]);
  std::lock_guard lock(mutex_);
  return presence_->has_left(peer) || !wire_->lost(peer).empty();
}

PeerState ClusterTransport::state(Rank peer) {
  if (shares_host(peer)) return local_->state(local_members({peer})[0]);
  if (is_gone(peer)) return PeerState::kGone;
  std::lock_guard lock(mutex_);
  return silent_for(peer) >= kSilent ? PeerState::kStopped : PeerState::kAlive;
}

std::string ClusterTransport::activity_of(Rank peer) {
  if (shares_host(peer)) return local_->activity_of(local_members({peer})[0]);
  std::lock_guard lock(mutex_);
  return peers_[static_cast<size_t>(peer)].activity;
}

std::string ClusterTransport::describe(Rank peer) {
  if (shares_host(peer)) return local_->describe(local_members({peer})[0]);
  const std::string who = "its process on host " + std::to_string(host_of(peer));
  std::lock_guard lock(mutex_);
  if (presence_->has_left(peer)) return who + " has ended in good order";
  if (const std::string why = wire_->lost(peer); !why.empty()) return who + " is gone (" + why + ")";
  const auto silent = silent_for(peer);
  if (silent < kSilent) return who + " is alive";
  return who + " has its connection open, but has answered nothing for " + std::to_string(silent.count()) +
         " ms: it is stopped (SIGSTOP or a debugger), cut off, or gets no core";
}

void ClusterTransport::sleep_until(SteadyTime deadline) {
  bool armed = false;
  {
    std::lock_guard lock(mutex_);
    armed = wire_->arm();
  }
  if (armed) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    epoll_event events[2];
    epoll_wait(epoll_, events, 2, static_cast<int>(std::clamp<int64_t>(left, 0, 3600'000)));
  }
  local_->sleep_until(steady_clock::now());
}

void ClusterTransport::progress_network() {
  std::lock_guard lock(mutex_);
  do {
    while (wire_->progress()) {
    }
  } while (!wire_->arm());
}

void ClusterTransport::wait_for_network() {
  epoll_event events[2];
  epoll_wait(network_epoll_, events, 2, -1);
  eventfd_t count = 0;
  eventfd_read(interrupt_, &count);
}

void ClusterTransport::interrupt_wait() { eventfd_write(interrupt_, 1); }

}  // namespace herd::transport
