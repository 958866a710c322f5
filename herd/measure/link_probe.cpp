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
constexpr double kPingsUs = 3000;  // time for pings at one moment
constexpr double kLongUs = 4000;   // a message that takes so long is long enough
constexpr double kExchangesUs = 2000, kMaxExchanges = 7;
constexpr int kTries = 2;  // tries of a long enough message: an interrupted shorter one takes as long
constexpr double kBurstsUs = 1000;
constexpr int64_t kMinBursts = 3, kMaxBursts = 9;
constexpr int64_t kFirstBurst = 2, kLastBurst = 128;  // messages of a burst
constexpr double kBurstLatencies = 2;                 // the cores bind a burst that takes so many latencies
constexpr int64_t kPieceBytes = 16 << 10;             // one message of a stream
constexpr int64_t kMinPieces = 4, kMaxPieces = 64;    // messages of a stream
constexpr double kStreamUs = 4000, kRestUs = 3000;
constexpr int kStreams = 2;

enum class Measurement : int64_t { kEnd, kPings, kBurst, kHalves, kExchanges, kStream };
// Tells the other end which measurement comes next, so that it takes part.
struct ProbeRequest {
  Measurement measurement = Measurement::kEnd;
  int64_t bytes = 0;     // bytes of a message
  int64_t times = 0;     // number of bursts or exchanges; kStream: number of messages
  int64_t messages = 0;  // kBurst: messages of one burst
};

std::span<std::byte> bytes_of(auto& value) { return std::as_writable_bytes(std::span(&value, 1)); }

double minimum(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

// The receiver says that its memory is allocated. Timing starts then, since to allocate may take longer than a message.
void send_ready(ProbeWire& wire) {
  std::array<std::byte, kShortBytes> word{};
  wire.send(word);
}

void receive_ready(ProbeWire& wire) {
  std::array<std::byte, kShortBytes> word{};
  wire.receive(word);
}

void burst(ProbeWire& wire, int64_t messages) {
  std::array<std::byte, kShortBytes> bytes{};
  for (int64_t i = 0; i < messages; ++i) wire.send(bytes);
  for (int64_t i = 0; i < messages; ++i) wire.receive(bytes);
}

// Returns the time of each burst but the first, which includes the wait for the other end.
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

// Returns the time of each exchange, in which both ends send a message at once. An exchange ends with a short message
// from the other end that it has its message, too. Otherwise the end that is done first would find its next message
// there, and measure too little.
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

// Requests the measurements, and makes a link of them.
class LinkProber {
 public:
  explicit LinkProber(ProbeWire& wire) : wire_(wire) {}

  Link measure() {
    LinkProbe probe;
    pings_us(kShortBytes, kMinPings);  // the first pings open the connection
    note_short(pings_us(kShortBytes, kMaxPings), probe);
    long_messages(probe);
    const Link link = measure_burst(link_of(probe), probe);
    request({Measurement::kEnd});
    return link;
  }

 private:
  // Notes the times of short messages at one of several moments. At some moments a machine has both ends on one core:
  // then a message waits for its turn, and costs less than between two cores.
  void note_short(const std::vector<double>& pings, LinkProbe& probe) {
    const double short_us = lower_quartile(pings);
    probe.short_us = probe.short_us > 0 ? std::min(probe.short_us, short_us) : short_us;
    probe.message_us = std::max(probe.message_us, message_us(short_us));
  }

  void request(ProbeRequest content) { wire_.send(bytes_of(content)); }

  std::vector<double> stream_us(int64_t pieces, double latency_us) {
    request({Measurement::kStream, kPieceBytes, pieces});
    std::vector<std::byte> piece(static_cast<size_t>(kPieceBytes));
    std::vector<double> us(static_cast<size_t>(pieces));
    receive_ready(wire_);
    for (int64_t i = 0; i < pieces; ++i) wire_.send(piece);
    wire_.receive(std::as_writable_bytes(std::span(us)));
    // The receiver's clock starts two latencies early: its word that it is ready, and the first piece, are on the way.
    for (double& arrival_us : us) arrival_us = std::max(0.0, arrival_us - 2 * latency_us);
    return us;
  }

  // Returns the link with its burst. Times short messages, too, while the link rests.
  Link measure_burst(const Link& link, LinkProbe& probe) {
    const auto pieces =
        std::clamp(static_cast<int64_t>(kStreamUs * link.bytes_per_us) / kPieceBytes, kMinPieces, kMaxPieces);
    Link found = link;
    for (int i = 0; i < kStreams; ++i) {
      const std::vector<double> pings = rest_link();
      note_short(pings, probe);
      // Takes the least latency of this moment: with a greater one, pieces would seem to arrive too early.
      const Link candidate = with_burst(link, {kPieceBytes, stream_us(pieces, minimum(pings))});
      if (candidate.burst_bytes > found.burst_bytes) found = candidate;  // an interruption makes a burst look smaller
    }
    if (found.burst_bytes > 0) {
      note_short(rest_link(), probe);
      const double short_us = minimum(pings_us(kShortBytes, kMinPings));
      const double piece_us = std::max(1e-3, minimum(pings_us(kPieceBytes, kMinPings)) - short_us);
      found.burst_bytes_per_us = std::max(found.burst_bytes_per_us, static_cast<double>(kPieceBytes) / piece_us);
    }
    found.latency_us = probe.short_us;
    found.message_us = std::min(probe.message_us, probe.short_us);
    return found;
  }

  // Sends only pings for kRestUs: while little passes, a limited link may save up a burst.
  std::vector<double> rest_link() { return pings_us(kShortBytes, std::numeric_limits<size_t>::max(), kRestUs); }

  std::vector<double> pings_us(int64_t bytes, size_t max_pings, double max_us = kPingsUs) {
    request({Measurement::kPings, bytes});
    std::vector<std::byte> ping(static_cast<size_t>(bytes));
    std::vector<double> us;
    const double begin = wire_.now_us();
    for (bool again = true; again;) {
      again = us.size() + 1 < kMinPings || (us.size() + 1 < max_pings && wire_.now_us() - begin < max_us);
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
      request({.measurement = Measurement::kBurst, .times = times, .messages = messages_});
      const double burst_us = lower_quartile(bursts_us(wire_, messages_, times));
      if (burst_us >= kBurstLatencies * short_us || messages_ == kLastBurst) {
        return burst_us / static_cast<double>(2 * messages_);
      }
    }
  }

  void long_messages(LinkProbe& probe) {
    std::array<double, 2> took_us = {0, 0};  // times of the whole message and of its second half
    int64_t bytes = kFirstBytes;
    double half_us = 0;
    for (int tries = 0; tries < kTries;) {
      if (tries == 0) bytes *= 2;
      std::vector<std::byte> half(static_cast<size_t>(bytes / 2));
      request({Measurement::kHalves, bytes});
      receive_ready(wire_);
      for (int i = 0; i < 2; ++i) wire_.send(half);
      wire_.receive(bytes_of(took_us));
      took_us[0] -= 2 * probe.short_us;  // the word that the receiver is ready, and the first byte, were on the way
      took_us[1] = second_half_us(took_us[0], took_us[1]);
      half_us = tries == 0 ? took_us[1] : std::min(half_us, took_us[1]);
      tries = took_us[0] >= kLongUs || bytes >= kLastBytes ? tries + 1 : 0;
    }
    // The first exchange is dropped: it waits until both ends are ready, and may pass a limited link in a burst.
    const auto times = 1 + static_cast<int64_t>(std::clamp(kExchangesUs / half_us, 2.0, kMaxExchanges));
    request({Measurement::kExchanges, bytes / 2, times});
    std::vector<double> us = exchanges_us(wire_, bytes / 2, times);
    us.erase(us.begin());
    probe.long_bytes = bytes / 2;
    probe.long_us = probe.short_us + std::max(half_us, 1e-3);
    probe.both_us = lower_quartile(std::move(us));  // includes the short message at its end
  }

  ProbeWire& wire_;
  int64_t messages_ = kFirstBurst;  // messages of a burst, doubled until the cores bind it
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
  send_ready(wire);
  wire.receive(half);
  const double middle = wire.now_us();
  wire.receive(half);
  const double end = wire.now_us();
  std::array<double, 2> took_us = {end - begin, end - middle};
  wire.send(bytes_of(took_us));
}

void answer_stream(ProbeWire& wire, int64_t bytes, int64_t pieces) {
  std::vector<std::byte> piece(static_cast<size_t>(bytes));
  std::vector<double> us;
  const double begin = wire.now_us();
  send_ready(wire);
  for (int64_t i = 0; i < pieces; ++i) {
    wire.receive(piece);
    us.push_back(wire.now_us() - begin);
  }
  wire.send(std::as_writable_bytes(std::span(us)));
}

}  // namespace

Link time_link(ProbeWire& wire) { return LinkProber(wire).measure(); }

void answer_probe(ProbeWire& wire) {
  for (ProbeRequest request;;) {
    wire.receive(bytes_of(request));
    switch (request.measurement) {
      case Measurement::kPings:
        answer_pings(wire, request.bytes);
        break;
      case Measurement::kBurst:
        bursts_us(wire, request.messages, request.times);
        break;
      case Measurement::kHalves:
        answer_halves(wire, request.bytes);
        break;
      case Measurement::kExchanges:
        exchanges_us(wire, request.bytes, request.times);
        break;
      case Measurement::kStream:
        answer_stream(wire, request.bytes, request.times);
        break;
      case Measurement::kEnd:
        return;
    }
  }
}

}  // namespace herd::measure
