#include "herd/transport/tcp_wire.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <map>
#include <sstream>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/descriptor.h"
#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/net/address.h"
#include "herd/net/listener.h"
#include "herd/net/secure_socket.h"
#include "herd/transport/network_interface.h"
#include "herd/transport/tcp_frame.h"

namespace herd::transport {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr size_t kRecordBytes = 16 << 10;  // the most that one TLS record holds
// Room for the longest frame, and for a record beyond it.
constexpr size_t kReadBytes = kFramePrefixBytes + static_cast<size_t>(Wire::kPieceBytes) + kRecordBytes;
constexpr size_t kTries = 8;       // attempts to connect to each address: strangers may have crowded us out
constexpr int kReadsPerTurn = 16;  // reads of one connection before others have their turn
constexpr auto kPushOut = 100ms;   // time to push out what is on its way at the end

// Returns the addresses of the named interfaces, or of all but the loopback if none is named.
std::vector<std::string> addresses_of(const std::string& interfaces) {
  const std::vector<NetworkInterface> all = network_interfaces();
  std::vector<std::string> addresses;
  std::istringstream names(interfaces);
  std::string have;
  for (const NetworkInterface& interface : all) have += (have.empty() ? "" : ", ") + interface.name;
  for (std::string name; std::getline(names, name, ',');) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const NetworkInterface& interface) { return interface.name == name; });
    if (found == all.end()) {
      throw Error(Code::kBadConfig, "network interface \"" + name + "\" is not up here or has no address (have: " +
                                        have + ")\n  fix: HERD_NETWORK=NAME of one that reaches the other hosts");
    }
    addresses.push_back(found->address);
  }
  for (const NetworkInterface& interface : all) {
    if (interfaces.empty() && !interface.loopback) addresses.push_back(interface.address);
  }
  if (addresses.empty()) {
    throw Error(Code::kBadConfig,
                "no network interface here but the loopback is up"
                "\n  fix: HERD_NETWORK=NAME of one that reaches the other hosts, or \"lo\"");
  }
  return addresses;
}

// Holds one frame that waits to be sent.
struct Queued {
  FrameHeader header;
  std::vector<std::byte> copy;
  std::span<const std::byte> payload;  // lies in `copy`, or in the caller's memory
  std::shared_ptr<int> in_flight;
  size_t taken = 0;  // bytes of prefix and payload that are in records already
};

// Holds the connection to a rank.
struct Outgoing {
  std::unique_ptr<net::SecureSocket> socket;
  std::vector<std::string> addresses;
  size_t tries = 0;  // attempts so far, over all addresses
  int port = 0;
  bool dialled = false, watches_write = false;
  std::deque<Queued> queue;
  std::vector<std::byte> record;  // the TLS record that is being written
  size_t written = 0;             // bytes of it that are written
};

// Holds the connection from a rank.
struct Incoming {
  std::unique_ptr<net::SecureSocket> socket;
  Rank from = -1;
  std::vector<std::byte> bytes;  // kReadBytes of room; `held` of them wait for the rest of their frame
  size_t held = 0;
};

// Sends to each rank over a connection that this rank opens, and receives over one that the peer opens.
class TcpWire final : public Wire {
 public:
  explicit TcpWire(const WireOptions& options)
      : options_(options),
        context_(options.key),
        own_addresses_(addresses_of(options.interfaces)),
        listener_(std::make_unique<net::Listener>(context_, own_addresses_, 0)),
        port_(listener_->port()),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        outgoing_(static_cast<size_t>(options.size)),
        lost_(static_cast<size_t>(options.size)) {
    if (epoll_.fd < 0) throw_errno(Code::kStorage, "create an epoll descriptor", errno);
    watch(EPOLL_CTL_ADD, listener_->descriptor(), EPOLLIN, kListener);
  }

  ~TcpWire() override {
    handler_ = nullptr;
    const auto until = steady_clock::now() + kPushOut;
    const auto has_unsent = [](const Outgoing& out) {
      return out.socket != nullptr && (!out.queue.empty() || out.written < out.record.size());
    };
    while (steady_clock::now() < until && std::any_of(outgoing_.begin(), outgoing_.end(), has_unsent)) {
      if (!progress()) wait(10ms);
    }
  }

  std::string_view name() const override { return "tcp"; }

  std::string address() const override {
    std::string text = std::to_string(port_);
    for (const std::string& own_address : own_addresses_) text += " " + own_address;
    return text;
  }

  std::string description() const override {
    return "tcp with TLS 1.3 over " + (options_.interfaces.empty() ? "any interface" : options_.interfaces);
  }

  void connect(std::vector<std::string> addresses) override {
    for (size_t rank = 0; rank < outgoing_.size(); ++rank) {
      std::istringstream text(addresses[rank]);
      text >> outgoing_[rank].port;
      std::vector<std::string>& known = outgoing_[rank].addresses;
      for (std::string peer_address; text >> peer_address;) known.push_back(peer_address);
      // Of interfaces that nobody named, some may reach no other host: the first ones are the likeliest.
      if (!options_.interfaces.empty()) known = addresses_to_try(known, options_.rank, static_cast<Rank>(rank));
    }
  }

  void set_handler(Handler handler) override { handler_ = std::move(handler); }

  void stop_listening() override {
    report_strangers();
    listener_.reset();  // its descriptor leaves the epoll with it
  }

  void send_copy(Rank to, const FrameHeader& header, std::span<const std::byte> payload) override {
    HERD_CHECK_LE(static_cast<int64_t>(payload.size()), kCopyBytes);
    if (!lost(to).empty()) return;
    Outgoing& out = outgoing_[static_cast<size_t>(to)];
    out.queue.push_back({header, {payload.begin(), payload.end()}, {}, nullptr});
    out.queue.back().payload = out.queue.back().copy;
    push(to);
  }

  void send(Rank to, const FrameHeader& header, std::span<const std::byte> payload,
            const std::shared_ptr<int>& in_flight) override {
    HERD_CHECK_LE(static_cast<int64_t>(payload.size()), kPieceBytes);
    if (!lost(to).empty()) return;
    ++*in_flight;
    outgoing_[static_cast<size_t>(to)].queue.push_back({header, {}, payload, in_flight});
    push(to);
  }

  bool progress() override {
    bool moved = false;
    const std::vector<int> with_bytes = std::exchange(more_, {});
    for (int descriptor : with_bytes) moved |= take_from(descriptor);
    std::array<epoll_event, 32> events{};
    const int ready = epoll_wait(epoll_.fd, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < ready; ++i) {
      const uint64_t who = events[static_cast<size_t>(i)].data.u64;
      const int index = static_cast<int>(who & 0xffffffff);
      if (who == kListener) {
        accept_connections();
      } else if ((who & kOutgoing) != 0) {
        push(index);
      } else {
        moved |= take_from(index);  // false for a part of a record
        continue;
      }
      moved = true;
    }
    return moved;
  }

  bool arm() override { return more_.empty(); }
  int descriptor() const override { return epoll_.fd; }

  void wait(std::chrono::milliseconds at_most) override {
    if (!arm()) return;
    epoll_event event = {};
    epoll_wait(epoll_.fd, &event, 1, static_cast<int>(at_most.count()));
  }

  std::string lost(Rank peer) const override { return lost_[static_cast<size_t>(peer)]; }

 private:
  // Tags of epoll's data. The low 32 bits are the peer's rank with kOutgoing, else a descriptor.
  static constexpr uint64_t kListener = uint64_t{1} << 40, kOutgoing = uint64_t{1} << 32;

  void watch(int operation, int descriptor, uint32_t events, uint64_t who) {
    epoll_event event = {};
    event.events = events;
    event.data.u64 = who;
    if (epoll_ctl(epoll_.fd, operation, descriptor, &event) != 0) throw_errno(Code::kStorage, "watch a socket", errno);
  }

  void accept_connections() {
    if (!listener_) return;
    for (auto& socket : listener_->accept()) {
      const std::string& peer = socket->peer_name();
      Rank from = -1;
      std::from_chars(peer.data(), peer.data() + peer.size(), from);
      if (from < 0 || from >= options_.size) continue;
      const int descriptor = socket->descriptor();
      watch(EPOLL_CTL_ADD, descriptor, EPOLLIN, static_cast<uint64_t>(descriptor));
      incoming_[descriptor] = {std::move(socket), from, std::vector<std::byte>(kReadBytes), 0};
      take_from(descriptor);
    }
    report_strangers();
  }

  void report_strangers() {
    if (listener_->refused() == reported_ || steady_clock::now() - last_report_ < 1s) return;
    log_warning("rank " + std::to_string(options_.rank) + " refused " +
                std::to_string(listener_->refused() - reported_) +
                " connections of strangers over the network; the last one: " + listener_->last_refusal());
    reported_ = listener_->refused();
    last_report_ = steady_clock::now();
  }

  // Reads what has come over a connection. Returns whether anything had.
  bool take_from(int descriptor) {
    const auto found = incoming_.find(descriptor);
    if (found == incoming_.end()) return false;
    Incoming& in = found->second;
    bool moved = false, valid = true, had_all = false;
    for (int turn = 0; turn < kReadsPerTurn && valid; ++turn) {
      const size_t got = in.socket->read(std::span(in.bytes).subspan(in.held));
      had_all = got == 0;
      if (had_all) break;
      moved = true;
      in.held += got;
      valid = deliver(in);
    }
    if (valid && in.socket->end_reason().empty()) {
      // After all reads a socket may still hold a part of a record, whose rest epoll reports.
      if (!had_all && in.socket->holds_more()) more_.push_back(descriptor);
      return moved;
    }
    lose(in.from, valid ? in.socket->end_reason() : "it sent what no herd sends");
    epoll_ctl(epoll_.fd, EPOLL_CTL_DEL, descriptor, nullptr);
    incoming_.erase(found);
    return true;
  }

  // Hands over the frames that are whole. Returns false if they are no valid frames.
  bool deliver(Incoming& in) {
    const std::optional<size_t> at = take_whole_frames(std::span(in.bytes).first(in.held), in.from, handler_);
    if (!at) return false;
    if (*at > 0) std::memmove(in.bytes.data(), in.bytes.data() + *at, in.held - *at);
    in.held -= *at;
    return true;
  }

  // Notes that a rank is gone. Nothing is sent to it any more, but what it has sent still arrives.
  void lose(Rank peer, const std::string& why) {
    if (std::string& lost = lost_[static_cast<size_t>(peer)]; lost.empty()) lost = why;
    Outgoing& out = outgoing_[static_cast<size_t>(peer)];
    for (Queued& frame : out.queue) {
      if (frame.in_flight != nullptr) --*frame.in_flight;
    }
    out.queue.clear();
    out.record.clear();
    out.written = 0;
    hang_up(out);
  }

  void hang_up(Outgoing& out) {
    if (out.socket == nullptr) return;
    epoll_ctl(epoll_.fd, EPOLL_CTL_DEL, out.socket->descriptor(), nullptr);
    out.socket.reset();
  }

  // Connects to a rank, if it is not connected yet, and sends what waits, as far as it goes without blocking.
  void push(Rank to) {
    Outgoing& out = outgoing_[static_cast<size_t>(to)];
    std::string why;
    if (!out.dialled) dial(to, why);
    while (out.socket != nullptr) {
      if (out.socket->shake_hands()) send_records(out);
      if (out.socket->end_reason().empty()) break;
      why = out.socket->end_reason();
      const bool was_open = out.socket->is_open();
      hang_up(out);
      if (!was_open) dial(to, why);
    }
    if (out.socket == nullptr) return lose(to, why);
    const bool wants_write = out.socket->wants_write();
    if (wants_write == out.watches_write) return;
    out.watches_write = wants_write;
    watch(EPOLL_CTL_MOD, out.socket->descriptor(), wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN,
          kOutgoing | static_cast<uint64_t>(to));
  }

  // Connects to the next of a rank's addresses. Leaves it without a socket where no address is left.
  void dial(Rank to, std::string& why) {
    Outgoing& out = outgoing_[static_cast<size_t>(to)];
    out.dialled = true;
    while (out.socket == nullptr && out.tries < kTries * out.addresses.size()) {
      const std::string& address = out.addresses[out.tries++ % out.addresses.size()];
      std::string failed;
      Descriptor socket = net::start_connecting(net::numeric_address(address, out.port), failed);
      if (!failed.empty()) {
        why = failed;
        continue;
      }
      out.socket = net::SecureSocket::connect(context_, std::move(socket), std::to_string(options_.rank));
      out.watches_write = true;
      watch(EPOLL_CTL_ADD, out.socket->descriptor(), EPOLLIN | EPOLLOUT, kOutgoing | static_cast<uint64_t>(to));
    }
  }

  static void send_records(Outgoing& out) {
    std::array<std::byte, 1> nothing{};
    while (true) {
      if (out.written == out.record.size()) fill_record(out);
      if (out.record.empty()) break;
      const size_t sent = out.socket->write(std::span(out.record).subspan(out.written));
      if (sent == 0) return;
      out.written += sent;
    }
    out.socket->read(nothing);  // brings no data, but finds out that the other end is gone
  }

  // Fills the next record with as many frames as fit; it stays empty where none waits.
  static void fill_record(Outgoing& out) {
    out.record.clear();
    out.written = 0;
    while (!out.queue.empty() && out.record.size() < kRecordBytes) {
      Queued& frame = out.queue.front();
      if (frame.taken == 0) {
        if (kRecordBytes - out.record.size() < kFramePrefixBytes) return;
        const auto bytes = static_cast<uint32_t>(frame.payload.size());
        out.record.resize(out.record.size() + kFramePrefixBytes);
        std::byte* prefix = out.record.data() + out.record.size() - kFramePrefixBytes;
        std::memcpy(prefix, &bytes, sizeof bytes);
        std::memcpy(prefix + kFrameAlign, &frame.header, sizeof frame.header);
        frame.taken = kFramePrefixBytes;
      }
      const std::span<const std::byte> left = frame.payload.subspan(frame.taken - kFramePrefixBytes);
      const auto take = left.first(std::min(left.size(), kRecordBytes - out.record.size()));
      out.record.insert(out.record.end(), take.begin(), take.end());
      frame.taken += take.size();
      if (take.size() < left.size()) return;
      out.record.resize(padded_to_frame(out.record.size()));
      if (frame.in_flight != nullptr) --*frame.in_flight;
      out.queue.pop_front();
    }
  }

  WireOptions options_;
  net::SecureContext context_;
  std::vector<std::string> own_addresses_;
  std::unique_ptr<net::Listener> listener_;  // until every peer has connected
  const int port_;
  Descriptor epoll_;
  Handler handler_;
  std::vector<Outgoing> outgoing_;    // by rank
  std::map<int, Incoming> incoming_;  // by descriptor
  std::vector<int> more_;             // descriptors of those that hold bytes which epoll does not report
  std::vector<std::string> lost_;     // by rank: why it is lost; empty while it is not
  int64_t reported_ = 0;              // refused connections that the log has named
  steady_clock::time_point last_report_ = {};
};

}  // namespace

std::vector<std::string> addresses_to_try(const std::vector<std::string>& addresses, Rank self, Rank peer) {
  std::vector<std::string> turned = addresses;
  if (!turned.empty()) {
    const auto first = static_cast<std::ptrdiff_t>(static_cast<size_t>(self + peer) % turned.size());
    std::rotate(turned.begin(), turned.begin() + first, turned.end());
  }
  return turned;
}

std::unique_ptr<Wire> open_tcp(const WireOptions& options) { return std::make_unique<TcpWire>(options); }

std::unique_ptr<Wire> open_wire(WireKind kind, const WireOptions& options) {
  return kind == WireKind::kTcp ? open_tcp(options) : open_ucx(options);
}

}  // namespace herd::transport
