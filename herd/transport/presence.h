// Defines how ranks of several hosts meet and part: by a word that is answered, so that each knows what the other
// knows.
//   meet: the lower of two ranks says hello first, the higher answers and then says its own. Each word is a frame, so
//   afterwards the connection has carried frames both ways, and never did both begin to make it at once.
//   part: a rank that ends says bye to all others and waits for their answers. Frames arrive in order, so whoever has
//   answered has all that the rank ever sent; that the connection ends afterwards is no loss.
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
  // `peers`: all ranks, of `size`, on other hosts. `rest` moves the wire and returns true, or sleeps until there may
  // be something to move, some milliseconds at most.
  Presence(Wire& wire, Rank rank, int size, std::vector<Rank> peers, Stamp stamp, std::function<bool()> rest);

  void hear(const FrameHeader& header);  // of kind kHello, kBye or kHeard
  // Collective. Throws kPeerLost or kTimeout, naming a rank that did not answer.
  void meet(SteadyTime deadline);
  // Returns once every peer has answered, has said bye itself or is lost; or when nothing has moved for `timeout`:
  // those that are left are stopped or cut off, and will take this rank for lost.
  void part(std::chrono::milliseconds timeout);
  bool left(Rank peer) const { return words_[static_cast<size_t>(peer)].left; }  // it has said bye

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
