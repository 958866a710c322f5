// Defines how a rank joins and leaves a job on several hosts, by handshakes with all ranks of other hosts. A handshake
// is a frame and its acknowledgement, so the sender knows that the receiver has the frame.
//   join   of two ranks the lower one sends kHello first; the higher one acknowledges it, then sends its own. So
//          afterwards the connection has carried frames both ways, and the two never began to connect at once.
//   leave  a rank that ends sends kBye to all others and waits for their acknowledgements. Frames arrive in order, so
//          a rank that acknowledges has all that the other ever sent, and nothing is lost when the connection ends.
// Threads: one at a time.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "herd/base/store.h"
#include "herd/transport/wire.h"

namespace herd::transport {

class Presence {
 public:
  using Stamp = std::function<FrameHeader(Rank to, FrameKind kind)>;  // makes the header of a frame
  // `peers` are all ranks on other hosts; `size` counts all ranks of the job. `progress_or_wait` moves frames and
  // returns true, or waits some milliseconds for a frame and returns false.
  Presence(Wire& wire, Rank rank, int size, std::vector<Rank> peers, Stamp stamp,
           std::function<bool()> progress_or_wait);

  void on_frame(const FrameHeader& header);  // takes a frame of kind kHello, kBye or kAcknowledge
  // Collective. Throws kPeerLost or kTimeout with a rank that did not answer.
  void join(SteadyTime deadline);
  // Returns once every peer has acknowledged, has sent kBye itself or is lost, or when no frame has moved for
  // `timeout`. Peers that have done none of this are stopped or cut off, and will take this rank for lost.
  void leave(std::chrono::milliseconds timeout);
  // Tells whether the peer has sent kBye.
  bool has_left(Rank peer) const { return handshakes_[static_cast<size_t>(peer)].received_bye; }

 private:
  struct Handshake {  // state of the handshakes with one peer
    bool received_hello = false;
    bool received_bye = false;
    bool acknowledged = false;  // the peer has acknowledged this rank's last kHello or kBye
  };
  void send(Rank to, FrameKind kind);

  Wire& wire_;
  Rank rank_;
  std::vector<Rank> peers_;
  std::vector<Handshake> handshakes_;  // by rank
  Stamp stamp_;
  std::function<bool()> progress_or_wait_;
};

}  // namespace herd::transport
