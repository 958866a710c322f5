// Defines how ranks of several hosts meet and part: each answers the other's word, so each knows that the other has
// heard.
//   meet: the lower of two ranks says hello first, the higher answers and then says its own. Each word is a frame, so
//   afterwards the connection has carried frames both ways, and the two never began to connect at once.
//   part: a rank that ends says bye to all others and waits for their answers. Frames arrive in order, so a rank that
//   has answered has all that the other ever sent, and nothing is lost when the connection ends.
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
  using Stamp = std::function<FrameHeader(Rank to, FrameKind kind)>;
  // `peers` are all ranks on other hosts, of `size` ranks. `rest` moves the wire and returns true, or sleeps some
  // milliseconds at most until there may be something to move.
  Presence(Wire& wire, Rank rank, int size, std::vector<Rank> peers, Stamp stamp, std::function<bool()> rest);

  void hear(const FrameHeader& header);  // takes a frame of kind kHello, kBye or kHeard
  // Collective. Throws kPeerLost or kTimeout with a rank that did not answer.
  void meet(SteadyTime deadline);
  // Returns once every peer has answered, has said bye itself or is lost, or when nothing has moved for `timeout`.
  // Peers that are left then are stopped or cut off, and will take this rank for lost.
  void part(std::chrono::milliseconds timeout);
  bool left(Rank peer) const { return words_[static_cast<size_t>(peer)].left; }  // tells whether it has said bye

 private:
  struct Words {         // of one peer
    bool met = false;    // it has said hello
    bool heard = false;  // it has answered this rank's last word
    bool left = false;   // it has said bye
  };
  void say(Rank to, FrameKind kind);

  Wire& wire_;
  Rank rank_;
  std::vector<Rank> peers_;
  std::vector<Words> words_;  // by rank
  Stamp stamp_;
  std::function<bool()> rest_;
};

}  // namespace herd::transport
