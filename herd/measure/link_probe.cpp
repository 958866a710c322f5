#include "herd/measure/link_probe.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "herd/measure/figures.h"
#include "herd/measure/lower_quartile.h"

namespace herd::measure {
namespace {

constexpr int64_t kShortBytes = 8, kFirstBytes = 64 << 10, kLastBytes = 4 << 20;
constexpr size_t kMinPings = 4, kMaxPings = 60;
constexpr double kPingsUs = 3000, kLongUs = 4000;
constexpr double kExchangesUs = 2000, kMaxExchanges = 7;
constexpr int kTries = 2;  // of the size that is long enough: one that was interrupted looks long, and is not
constexpr double kBurstsUs = 1000;
constexpr int64_t kMinBursts = 3, kMaxBursts = 9, kFirstBurst = 2, kLastBurst = 128;
constexpr double kBurstLatencies = 2;      // a burst that takes as long is bound by the cores
constexpr int64_t kPieceBytes = 16 << 10;  // of a stream
constexpr double kStreamUs = 4000, kRestUs = 3000;
constexpr int64_t kMinPieces = 4, kMaxPieces = 64;
constexpr int kStreams = 2;

enum class Ask : int64_t { kEnd, kPings, kBurst, kHalves, kExchanges, kStream };
struct Question {
  Ask ask = Ask::kEnd;
  int64_t bytes = 0;     // of a message
  int64_t times = 0;     // kBurst, kExchanges: how often; kStream: messages
  int64_t messages = 0;  // kBurst: of each
};

std::span<std::byte> bytes_of(auto& value) { return std::as_writable_bytes(std::span(&value, 1)); }

double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

// What is timed begins when both ends have their memory: to make some of it may take longer than a message.
void say_ready(ProbeWire& wire) {
  std::array<std::byte, kShortBytes> word{};
  wire.send(word);
}

void hear_ready(ProbeWire& wire) {
  std::array<std::byte, kShortBytes> word{};
  wire.receive(word);
}

void burst(ProbeWire& wire, int64_t messages) {
  std::array<std::byte, kShortBytes> bytes{};
  for (int64_t i = 0; i < messages; ++i) wire.send(bytes);
  for (int64_t i = 0; i < messages; ++i) wire.receive(bytes);
}

// One time each. The first waits until the other end begins, too.
std::vector<double> bursts_us(ProbeWire& wire, int64_t messages, int64_t times) {
  std::vector<double> us;
  for (int64_t i = 0; i < times; ++i) {
    const double begin = wire.now_us();
    burst(wire, messages);
    us.push_back(wire.now_us() - begin);
  }
  us.erase(us.begin());
  return us;
}

// Of messages of so many bytes, each sent as one comes; one time each. They end with a word from the other end that it
// has its message, too: of two ways one is done first, and finds its next message there earlier by as much.
std::vector<double> exchanges_us(ProbeWire& wire, int64_t bytes, int64_t times) {
  std::vector<std::byte> out(static_cast<size_t>(bytes)), in(out.size());
  std::vector<double> us;
  for (int64_t i = 0; i < times; ++i) {
    const double begin = wire.now_us();
    wire.exchange(out, in);
    burst(wire, 1);
    us.push_back(wire.now_us() - begin);
  }
  return us;
}

// The end that asks.
class Asker {
 public:
  explicit Asker(ProbeWire& wire) : wire_(wire) {}

  Link ask() {
    LinkProbe probe;
    pings_us(kShortBytes, kMinPings);  // they make the connection
    look(pings_us(kShortBytes, kMaxPings), probe);
    long_messages(probe);
    const Link link = burst_of(link_of(probe), probe);
    question({Ask::kEnd});
    return link;
  }

 private:
  // Short messages, at one moment of several. At some of them a machine has both ends on one core: then a message waits
  // for its turn, and costs less than between two cores.
  void look(const std::vector<double>& pings, LinkProbe& probe) {
    const double short_us = lower_quartile(pings);
    probe.short_us = probe.short_us > 0 ? std::min(probe.short_us, short_us) : short_us;
    probe.message_us = std::max(probe.message_us, message_us(short_us));
  }

  void question(Question question) { wire_.send(bytes_of(question)); }

  std::vector<double> stream_us(int64_t pieces, double latency_us) {
    question({Ask::kStream, kPieceBytes, pieces});
    std::vector<std::byte> piece(static_cast<size_t>(kPieceBytes));
    std::vector<double> us(static_cast<size_t>(pieces));
    hear_ready(wire_);
    for (int64_t i = 0; i < pieces; ++i) wire_.send(piece);
    wire_.receive(std::as_writable_bytes(std::span(us)));
    for (double& at : us) at = std::max(0.0, at - 2 * latency_us);  // until it knew that its receiver was ready, too
    return us;
  }

  // Looks at short messages, too, while the link has a rest.
  Link burst_of(const Link& link, LinkProbe& probe) {
    const auto pieces =
        std::clamp(static_cast<int64_t>(kStreamUs * link.bytes_per_us) / kPieceBytes, kMinPieces, kMaxPieces);
    Link found = link;
    for (int i = 0; i < kStreams; ++i) {
      const std::vector<double> pings = rest();
      look(pings, probe);
      // The least of this moment: by a longer one its pieces would seem to come before their time.
      const Link one = with_burst(link, {kPieceBytes, stream_us(pieces, least(pings))});
      if (one.burst_bytes > found.burst_bytes) found = one;  // what interrupts it makes it look smaller
    }
    if (found.burst_bytes > 0) {
      look(rest(), probe);
      const double short_us = least(pings_us(kShortBytes, kMinPings));
      const double alone_us = std::max(1e-3, least(pings_us(kPieceBytes, kMinPings)) - short_us);
      found.burst_bytes_per_us = std::max(found.burst_bytes_per_us, static_cast<double>(kPieceBytes) / alone_us);
    }
    found.latency_us = probe.short_us;
    found.message_us = std::min(probe.message_us, probe.short_us);
    return found;
  }

  // While little passes a link may save up a burst.
  std::vector<double> rest() { return pings_us(kShortBytes, std::numeric_limits<size_t>::max(), kRestUs); }

  std::vector<double> pings_us(int64_t bytes, size_t at_most, double most_us = kPingsUs) {
    question({Ask::kPings, bytes});
    std::vector<std::byte> ping(static_cast<size_t>(bytes));
    std::vector<double> us;
    const double begin = wire_.now_us();
    for (bool again = true; again;) {
      again = us.size() + 1 < kMinPings || (us.size() + 1 < at_most && wire_.now_us() - begin < most_us);
      ping[0] = std::byte{again};
      const double sent = wire_.now_us();
      wire_.send(ping);
      wire_.receive(ping);
      us.push_back((wire_.now_us() - sent) / 2);
    }
    return us;
  }

  double message_us(double short_us) {
    const auto times = static_cast<int64_t>(std::clamp<double>(kBurstsUs / short_us, kMinBursts, kMaxBursts));
    for (;; messages_ *= 2) {
      question({.ask = Ask::kBurst, .times = times, .messages = messages_});
      const double burst_us = lower_quartile(bursts_us(wire_, messages_, times));
      if (burst_us >= kBurstLatencies * short_us || messages_ == kLastBurst) {
        return burst_us / static_cast<double>(2 * messages_);
      }
    }
  }

  void long_messages(LinkProbe& probe) {
    std::array<double, 2> took = {0, 0};  // us: the whole message, its second half
    int64_t bytes = kFirstBytes;
    double half_us = 0;
    for (int tries = 0; tries < kTries;) {
      if (tries == 0) bytes *= 2;
      std::vector<std::byte> half(static_cast<size_t>(bytes / 2));
      question({Ask::kHalves, bytes});
      hear_ready(wire_);
      for (int i = 0; i < 2; ++i) wire_.send(half);
      wire_.receive(bytes_of(took));
      took[0] -= 2 * probe.short_us;  // until it heard that its receiver was ready, and the first byte was there
      took[1] = second_half_us(took[0], took[1]);
      half_us = tries == 0 ? took[1] : std::min(half_us, took[1]);
      tries = took[0] >= kLongUs || bytes >= kLastBytes ? tries + 1 : 0;
    }
    // The first waits until both ends are ready, and may pass a limited link in a burst.
    const auto times = 1 + static_cast<int64_t>(std::clamp(kExchangesUs / half_us, 2.0, kMaxExchanges));
    question({Ask::kExchanges, bytes / 2, times});
    std::vector<double> us = exchanges_us(wire_, bytes / 2, times);
    us.erase(us.begin());
    probe.long_bytes = bytes / 2;
    probe.long_us = probe.short_us + std::max(half_us, 1e-3);
    probe.both_us = lower_quartile(std::move(us));  // with the short one at its end
  }

  ProbeWire& wire_;
  int64_t messages_ = kFirstBurst;  // of a burst that the cores bind, as far as this is known
};

void answer_pings(ProbeWire& wire, int64_t bytes) {
  std::vector<std::byte> ping(static_cast<size_t>(bytes));
  for (bool again = true; again;) {
    wire.receive(ping);
    again = ping[0] != std::byte{0};
    wire.send(ping);
  }
}

void answer_halves(ProbeWire& wire, int64_t bytes) {
  std::vector<std::byte> half(static_cast<size_t>(bytes / 2));
  const double begin = wire.now_us();
  say_ready(wire);
  wire.receive(half);
  const double middle = wire.now_us();
  wire.receive(half);
  const double end = wire.now_us();
  std::array<double, 2> took = {end - begin, end - middle};
  wire.send(bytes_of(took));
}

void answer_stream(ProbeWire& wire, int64_t bytes, int64_t pieces) {
  std::vector<std::byte> piece(static_cast<size_t>(bytes));
  std::vector<double> us;
  const double begin = wire.now_us();
  say_ready(wire);
  for (int64_t i = 0; i < pieces; ++i) {
    wire.receive(piece);
    us.push_back(wire.now_us() - begin);
  }
  wire.send(std::as_writable_bytes(std::span(us)));
}

}  // namespace

Link time_link(ProbeWire& wire) { return Asker(wire).ask(); }

void answer_probe(ProbeWire& wire) {
  for (Question question;;) {
    wire.receive(bytes_of(question));
    switch (question.ask) {
      case Ask::kPings:
        answer_pings(wire, question.bytes);
        break;
      case Ask::kBurst:
        bursts_us(wire, question.messages, question.times);
        break;
      case Ask::kHalves:
        answer_halves(wire, question.bytes);
        break;
      case Ask::kExchanges:
        exchanges_us(wire, question.bytes, question.times);
        break;
      case Ask::kStream:
        answer_stream(wire, question.bytes, question.times);
        break;
      case Ask::kEnd:
        return;
    }
  }
}

}  // namespace herd::measure
