// The first bytes of a connection. Even first byte: a stranger says the rest to a listener and hangs up; it is refused.
// Odd: a rank and a listener's socket shake hands and talk, while the rest, four bytes an edit, changes what passes
// between them or cuts it off; nothing changed is ever taken for what was said.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "accepted.h"
#include "herd/net/address.h"
#include "herd/net/listener.h"

namespace {

using namespace herd;

const std::string kSaid = "what a rank says to another once both have shown that they hold the key";

const net::SecureContext& context() {
  static const net::SecureContext made(std::string(net::SecureContext::kKeyBytes, 'k'));
  return made;
}

void say_to_a_listener(std::span<const uint8_t> bytes) {
  static net::Listener listener(context(), {"127.0.0.1"}, 0, {.max_strangers = 4});
  const int64_t before = listener.refused();
  std::string failed;
  Descriptor stranger = net::start_connecting(net::numeric_address("127.0.0.1", listener.port()), failed);
  pollfd connected = {stranger.fd, POLLOUT, 0};
  if (!failed.empty() || poll(&connected, 1, 1000) != 1) return;  // the system has no port left
  [[maybe_unused]] const ssize_t sent =
      send(stranger.fd, bytes.data(), std::min<size_t>(bytes.size(), 8192), MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(stranger.fd, SHUT_WR);
  const linger at_once = {1, 0};  // leaves no port waiting
  setsockopt(stranger.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  for (int turn = 0; listener.refused() == before; ++turn) {
    pollfd shown = {listener.descriptor(), POLLIN, 0};
    poll(&shown, 1, 1000);
    if (!listener.accept().empty() || turn > 100) std::abort();
  }
}

std::array<Descriptor, 2> socket_pair() {
  std::array<int, 2> made{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, made.data()) != 0) std::abort();
  return {Descriptor(made[0]), Descriptor(made[1])};
}

// Passes on what comes one way, with edits: XOR the byte at a position, or, with nothing to XOR, end the stream there.
class Meddler {
 public:
  Meddler(std::span<const uint8_t> edits, uint8_t direction) : edits_(edits), direction_(direction) {}

  bool pass(int from, int to) {
    std::array<uint8_t, 4096> bytes{};
    const ssize_t got = over_ ? 0 : recv(from, bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    auto count = static_cast<size_t>(got);
    for (size_t i = 0; i + 4 <= edits_.size(); i += 4) {
      const size_t at = edits_[i] + 256u * edits_[i + 1];
      if ((edits_[i + 3] & 1) != direction_ || at < at_ || at >= at_ + count) continue;
      changed_ = true;
      bytes[at - at_] ^= edits_[i + 2];
      if (edits_[i + 2] == 0) {
        over_ = true;
        count = at - at_;
      }
    }
    if (count > 0 && send(to, bytes.data(), count, MSG_NOSIGNAL) < 0) over_ = true;
    if (over_) shutdown(to, SHUT_WR);
    at_ += static_cast<size_t>(got);
    return true;
  }
  bool changed() const { return changed_; }

 private:
  std::span<const uint8_t> edits_;
  uint8_t direction_;
  size_t at_ = 0;
  bool over_ = false, changed_ = false;
};

void meddle(std::span<const uint8_t> edits) {
  auto [rank_end, rank_wire] = socket_pair();
  auto [listener_end, listener_wire] = socket_pair();
  const auto rank = net::SecureSocket::connect(context(), std::move(rank_end), "rank 3");
  const auto listener = net::SecureSocket::accept(context(), std::move(listener_end));
  Meddler there(edits, 0), back(edits, 1);
  std::string heard;
  size_t said = 0;
  for (bool moved = true; moved;) {
    rank->shake_hands();
    listener->shake_hands();
    if (rank->is_open() && said < kSaid.size()) said += rank->write(std::as_bytes(std::span(kSaid)).subspan(said));
    std::array<std::byte, 256> bytes{};
    const size_t got = listener->is_open() ? listener->read(bytes) : 0;
    heard.append(reinterpret_cast<const char*>(bytes.data()), got);
    moved = there.pass(rank_wire.fd, listener_wire.fd);
    moved |= back.pass(listener_wire.fd, rank_wire.fd);
    moved |= got > 0;
  }
  if (!kSaid.starts_with(heard)) std::abort();
  if (heard == kSaid) ++num_accepted;
  if (!there.changed() && !back.changed() && (heard != kSaid || listener->peer_name() != "rank 3")) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> rest(data + 1, size - 1);
  if (data[0] % 2 == 0)
    say_to_a_listener(rest);
  else
    meddle(rest.first(std::min<size_t>(rest.size(), 64)));
  return 0;
}
