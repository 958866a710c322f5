// A Wire carries bytes between hosts: frames from rank to rank, in order between two ranks, each with a header that
// says whom it comes from and what it is. Implementations: TCP inside TLS (tcp_wire.h), UCX for networks that no
// stranger reaches (open_ucx), and between threads of one process (thread_wire.h). Ranks of one host never use it,
// unless a test or a benchmark asks for that. Threads: one at a time (ClusterTransport's lock sees to it).
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
  kData,     // a piece of a message; `envelope` says of which
  kCredit,   // nothing but `taken`
  kAsk,      // where are you?
  kPlace,    // the answer: what the sender's board says
  kLeft,     // the answer of a rank that has closed the group; also said when it closes it
  kFailure,  // why the group failed
  kNote,     // what the sender says while a failed group agrees who is left
  kHello,    // the first word between two ranks; of no group, like the two that follow
  kBye,      // the last word of a rank that ends
  kHeard,    // the answer to either
};

struct FrameHeader {
  uint64_t key = 0;      // proves that the sender holds the job's token: a MAC of token, job and both ranks
  uint64_t channel = 0;  // the group
  int32_t from = -1;     // rank of the transport
  FrameKind kind = FrameKind::kData;
  uint8_t lane = 0;
  uint8_t unused[2] = {};
  uint64_t offset = 0;  // of the payload in its message
  uint64_t taken = 0;   // bytes that the sender has taken on this lane from the receiver so far: room for more
  Envelope envelope;
};
static_assert(sizeof(FrameHeader) == 64);

class Wire {
 public:
  // The payload is valid during the call only.
  using Handler = std::function<void(const FrameHeader& header, std::span<const std::byte> payload)>;

  static constexpr int64_t kCopyBytes = 64 << 10;    // the longest payload that send_copy() takes
  static constexpr int64_t kPieceBytes = 126 << 10;  // the longest that send() takes: it arrives in one buffer

  virtual ~Wire() = default;                                     // pushes out what is on its way, for 0.1 s at most
  virtual std::string_view name() const = 0;                     // "ucx"
  virtual std::string address() const = 0;                       // for connect() elsewhere; binary
  virtual std::string description() const = 0;                   // "ucx 1.13.1, tcp over eth0"
  virtual void connect(std::vector<std::string> addresses) = 0;  // by rank; an endpoint is made when it is first used
  virtual void receive_by(Handler handler) = 0;

  // Both return at once. What is sent to a peer that is gone vanishes.
  virtual void send_copy(Rank to, const FrameHeader& header, std::span<const std::byte> payload) = 0;
  // The payload is read until *in_flight, which send() adds one to, goes down again.
  virtual void send(Rank to, const FrameHeader& header, std::span<const std::byte> payload,
                    const std::shared_ptr<int>& in_flight) = 0;

  virtual bool progress() = 0;  // true if anything happened
  // descriptor() shows input once something arrives after arm() has said true; false: progress() first.
  virtual bool arm() = 0;
  virtual int descriptor() const = 0;
  virtual void wait(std::chrono::milliseconds at_most) = 0;  // for something to move, in the calling thread
  virtual std::string lost(Rank peer) const = 0;             // why the connection to the peer ended; "" while it holds
};

enum class WireKind : uint8_t {
  kTcp,  // inside TLS: for any network
  kUcx,  // neither encrypted nor authenticated: for networks that no stranger reaches
};

struct WireOptions {
  Rank rank = 0;
  int size = 1;
  std::string interfaces = {};              // network interfaces, "eth0,eth1"; empty: all
  std::string key = std::string(32, '\0');  // of the job: what TLS is keyed by; UCX has no use for it
  std::string transports = {};              // UCX's names, "tcp,self"; empty: what joins hosts here
};

std::unique_ptr<Wire> open_wire(WireKind kind, const WireOptions& options);
// Throws kBadConfig where this build has no UCX, or where UCX finds no way to other hosts.
std::unique_ptr<Wire> open_ucx(const WireOptions& options);
std::string ucx_version();  // "1.13.1"; "" where this build has no UCX

}  // namespace herd::transport
