// Frames of a rank that holds the token and sends anything: the same frames however its bytes are cut into reads, and
// what receives wait for on both lanes takes no byte outside its message.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "accepted.h"
#include "herd/transport/remote_lanes.h"
#include "herd/transport/tcp_frame.h"

namespace {

using namespace herd::transport;

constexpr herd::Rank kPeer = 1;

struct NoWire final : Wire {
  std::string_view name() const override { return "none"; }
  std::string address() const override { return ""; }
  std::string description() const override { return ""; }
  void connect(std::vector<std::string>) override {}
  void set_handler(Handler) override {}
  void send_copy(herd::Rank, const FrameHeader&, std::span<const std::byte>) override {}
  void send(herd::Rank, const FrameHeader&, std::span<const std::byte>, const std::shared_ptr<int>&) override {}
  bool progress() override { return false; }
  bool arm() override { return true; }
  int descriptor() const override { return -1; }
  void wait(std::chrono::milliseconds) override {}
  std::string lost(herd::Rank) const override { return ""; }
};

// A receive of `bytes` with a tag, in memory of its own.
struct Receive {
  Receive(Traffic traffic, uint64_t tag, size_t bytes) : memory(bytes) {
    message.peer = 0;
    message.traffic = traffic;
    message.data = memory.data();
    message.envelope = {tag, bytes, 0};
  }
  std::vector<std::byte> memory;
  Message message;
};

struct Stream {
  std::vector<std::byte> bytes;
  size_t frames = 0;
  bool sound = true;
};

// As a connection does: what is not whole yet waits for more.
template <typename Handler>
Stream take(std::span<const std::byte> all, size_t read_bytes, const Handler& handler) {
  Stream stream;
  for (size_t at = 0; at < all.size() && stream.sound; at += read_bytes) {
    const auto more = all.subspan(at, std::min(read_bytes, all.size() - at));
    stream.bytes.insert(stream.bytes.end(), more.begin(), more.end());
    const auto taken =
        take_whole_frames(stream.bytes, kPeer, [&](const FrameHeader& header, std::span<const std::byte> payload) {
          ++stream.frames;
          handler(header, payload);
        });
    stream.sound = taken.has_value();
    if (stream.sound) stream.bytes.erase(stream.bytes.begin(), stream.bytes.begin() + static_cast<ptrdiff_t>(*taken));
  }
  return stream;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto all = std::as_bytes(std::span(data, size));
  const auto nothing = [](const FrameHeader&, std::span<const std::byte>) {};
  const Stream whole = take(all, std::max<size_t>(size, 1), nothing), pieces = take(all, 57, nothing);
  if (whole.frames != pieces.frames || whole.sound != pieces.sound) std::abort();
  if (whole.frames > 0) ++num_accepted;
  NoWire wire;
  std::vector<Receive> receives;
  for (const uint64_t tag : {1, 2, 1}) receives.emplace_back(Traffic::kPointToPoint, tag, 8 * tag);
  for (const uint64_t tag : {5, 6}) receives.emplace_back(Traffic::kCollective, tag, 16);
  RemoteLanes lanes(wire, {kPeer}, [](int, FrameKind kind) {
    FrameHeader header;
    header.kind = kind;
    return header;
  });
  size_t next = 0;
  take(all, 1000, [&](const FrameHeader& header, std::span<const std::byte> payload) {
    lanes.arrive(0, header, payload);
    if (next < receives.size() && header.unused[0] != 0) lanes.post_receive(receives[next++].message);
    if (header.unused[1] != 0) lanes.has_unclaimed_message(0, header.envelope.tag);
  });
  while (next < receives.size()) lanes.post_receive(receives[next++].message);
  lanes.progress();
  for (const Receive& one : receives) {
    if (one.message.moved > static_cast<int64_t>(one.memory.size())) std::abort();
    if (one.message.done && (one.message.mismatch || one.message.moved != static_cast<int64_t>(one.memory.size())))
      std::abort();
  }
  return 0;
}
