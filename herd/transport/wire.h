// A Wire carries bytes between hosts: frames from rank to rank, in order between two ranks. The header of a frame names
// its sender and its kind. Implementations: TCP inside TLS (tcp_wire.h), UCX for networks that no stranger
// reaches (open_ucx), and between threads of one process (thread_wire.h). Ranks of one host never use it, unless a test
// or a benchmark asks for that.
// Threads: one at a time, under ClusterTransport's lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "herd/base/ids.h"
#include "herd/base/store.h"
#include "herd/transport/message.h"

namespace herd::transport {

enum class FrameKind : uint8_t {
  kData,      // a piece of a message, which `envelope` describes
  kCredit,    // has no payload; FrameHeader::taken tells the receiver how much more it may send
  kAskBoard,  // asks for the receiver's RankBoard
  kBoard,     // answers kAskBoard with the sender's RankBoard
  kLeft,      // tells that the sender has closed the group; also answers kAskBoard
  kFailure,   // tells why the group failed
  kNote,      // carries the sender's AgreementNote while a failed group agrees which ranks are left
  // The next three belong to no group (presence.h).
  kHello,        // is the first frame from one rank to another
  kBye,          // is the last frame of a rank that ends
  kAcknowledge,  // answers kHello or kBye
};

struct FrameHeader {
  uint64_t key = 0;    // proves that the sender holds the job's token: a MAC of token, job and both ranks
  uint64_t group = 0;  // id of the group
  int32_t from = -1;   // sender's rank in the job
  FrameKind kind = FrameKind::kData;
  uint8_t lane = 0;  // Traffic of the message (message.h)
  uint8_t unused[2] = {};
  uint64_t offset = 0;  // of the payload in its message, in bytes
  // Counts the bytes that the sender has taken on this lane from the receiver so far, which gives room for more.
  uint64_t taken = 0;
  Envelope envelope;
};
static_assert(sizeof(FrameHeader) == 64);

class Wire {
 public:
  // Takes a frame; the payload is valid during the call only. progress() calls it, on its caller's thread.
  using Handler = std::function<void(const FrameHeader& header, std::span<const std::byte> payload)>;

  static constexpr int64_t kCopyBytes = 64 << 10;    // the longest payload that send_copy() takes
  static constexpr int64_t kPieceBytes = 126 << 10;  // the longest payload that send() takes: it arrives in one buffer

  virtual ~Wire() = default;                    // pushes out what is on its way, for 0.1 s at most
  virtual std::string_view name() const = 0;    // returns "tcp", "ucx" or "inproc"
  virtual std::string address() const = 0;      // returns the bytes that connect() needs on other ranks
  virtual std::string description() const = 0;  // returns "ucx 1.13.1, tcp over eth0"
  // `addresses` are by rank; the first send to a rank makes its connection
  virtual void connect(std::vector<std::string> addresses) = 0;
  virtual void set_handler(Handler handler) = 0;  // without a handler, frames that arrive are dropped
  // Refuses all new connections from here on; only TCP does anything here. REQUIRES that every rank that will ever send
  // has connected.
  virtual void stop_listening() {}

  // send_copy() and send() return at once. What is sent to a peer that is gone vanishes.
  virtual void send_copy(Rank to, const FrameHeader& header, std::span<const std::byte> payload) = 0;
  // Adds one to *in_flight, and subtracts it when the payload is no longer read.
  virtual void send(Rank to, const FrameHeader& header, std::span<const std::byte> payload,
                    const std::shared_ptr<int>& in_flight) = 0;

  virtual bool progress() = 0;  // returns true if anything happened
  // Returns true when descriptor() will become readable once something arrives; false: call progress() first.
  virtual bool arm() = 0;
  virtual int descriptor() const = 0;
  virtual void wait(std::chrono::milliseconds at_most) = 0;  // waits in the calling thread until something can move
  virtual std::string lost(Rank peer) const = 0;  // returns why the connection to the peer ended; "" while it holds
};

enum class WireKind : uint8_t {
  kTcp,  // inside TLS: for any network
  kUcx,  // neither encrypted nor authenticated: for networks that no stranger reaches
};

struct WireOptions {
  Rank rank = 0;
  int size = 1;
  std::string interfaces = {};              // network interfaces, "eth0,eth1"; empty: all
  std::string key = std::string(32, '\0');  // secret of the job that keys TLS; UCX does not use it
  std::string transports = {};              // UCX's names, "tcp,self"; empty: those that join hosts here
};

std::unique_ptr<Wire> open_wire(WireKind kind, const WireOptions& options);
// Throws kBadConfig where this build has no UCX, or where UCX finds no way to other hosts.
std::unique_ptr<Wire> open_ucx(const WireOptions& options);
std::string ucx_version();  // returns "1.13.1"; "" where this build has no UCX

}  // namespace herd::transport
