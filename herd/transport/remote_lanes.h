// Carries the messages of one group to its members on other hosts, cut into frames; the receiver says how many bytes it
// has room for. A message of at most Wire::kCopyBytes is copied, and is done for its sender at once. A longer one is
// sent in pieces straight from the caller's memory. Its last KiB is sent as a copy once all pieces are on their way. So
// a message that its sender meanwhile gave up never counts as whole, though its memory may hold something else by now.
// A member is an index in the group. Each member has two lanes, one for each Traffic: collectives and point to point.
// Threads: one at a time.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "herd/transport/inbox.h"
#include "herd/transport/wire.h"

namespace herd::transport {

class RemoteLanes {
 public:
  // Makes a header for the member, with key, group and sender.
  using MakeHeader = std::function<FrameHeader(int member, FrameKind kind)>;
  // `ranks` has the transport's rank of each member, -1 for members on this host.
  RemoteLanes(Wire& wire, std::vector<Rank> ranks, MakeHeader make_header);

  // These do as Channel's functions of their names, for members on other hosts.
  void post_send(Message& message);
  void post_receive(Message& message);
  uint64_t bytes_sent() const { return bytes_sent_; }
  bool has_unclaimed_message(int member, uint64_t tag);
  bool progress();
  void drop_messages();

  // Takes a frame kData or kCredit of this group from the member.
  void arrive(int member, const FrameHeader& header, std::span<const std::byte> payload);

 private:
  struct Outbox {
    std::deque<Message*> queue;
    uint64_t sent = 0;   // bytes sent, with kPieceCharge (inbox.h) for each piece
    uint64_t taken = 0;  // bytes that the peer has said it has taken, counted alike
    std::shared_ptr<int> in_flight = std::make_shared<int>(0);
  };
  struct Peer {
    std::array<Inbox, 2> inbox = {Inbox(Traffic::kCollective), Inbox(Traffic::kPointToPoint)};
    std::array<Outbox, 2> outbox;
    std::array<uint64_t, 2> reported = {};  // by lane: taken bytes that the peer was last told of
  };
  bool move(int member, size_t lane);
  FrameHeader header_of(int member, size_t lane, const Message& message);
  void give_room(int member, size_t lane);

  Wire& wire_;
  std::vector<Rank> ranks_;
  MakeHeader make_header_;
  std::vector<Peer> peers_;  // by member
  std::vector<int> remote_;  // members
  uint64_t bytes_sent_ = 0;
};

}  // namespace herd::transport
