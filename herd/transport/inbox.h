// Takes messages of one kind of traffic from one peer, as their pieces arrive in order. A piece goes straight into the
// posted receive that matches its message. The inbox keeps pieces without such a receive, and does not count them as
// taken, so the sender soon has no room to send more.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <span>
#include <vector>

#include "herd/transport/message.h"

namespace herd::transport {

class Inbox {
 public:
  // On kCollective receives match messages in order, on kPointToPoint in order within a tag.
  explicit Inbox(Traffic traffic) : by_tag_(traffic == Traffic::kPointToPoint) {}

  void post(Message& message);
  // Takes a piece of the message with this envelope. Pieces arrive in order: a piece at another offset is ignored.
  void arrive(const Envelope& envelope, uint64_t offset, std::span<const std::byte> payload);
  // Returns true once a message with this tag, which no posted receive will take, has begun to arrive; messages before
  // it are kept.
  bool has_unclaimed_message(uint64_t tag);
  size_t posted() const { return posted_.size(); }  // counts receives that wait, or are being filled
  void drop();                                      // forgets what is posted, and drops all that arrives later
  // Flow control: the sender may be a fixed number of bytes ahead of this count. It counts the bytes of pieces that
  // were delivered or set aside, and kPieceCharge for each piece.
  uint64_t taken() const { return taken_; }
  static constexpr uint64_t kPieceCharge = 64;

 private:
  struct Piece {
    Envelope envelope;
    uint64_t offset;
    std::vector<std::byte> payload;
  };
  struct Early {  // a whole message that was set aside for one with another tag
    Envelope envelope;
    std::vector<std::byte> bytes;
  };
  bool wanted() const { return active_ || !posted_.empty(); }
  void take(const Envelope& envelope, uint64_t offset, std::span<const std::byte> payload);
  void begin(const Envelope& envelope);
  void finish();
  static void hand_over(Message& message, const Early& early);

  bool by_tag_;
  bool dropped_ = false;
  std::list<Message*> posted_;
  std::deque<Piece> kept_;  // pieces that no posted receive matches yet
  std::list<Early> early_;
  bool active_ = false;      // some pieces of a message have been delivered, and others not
  Message* into_ = nullptr;  // receive that the message goes into; nullptr: set_aside_ takes it, unless nowhere_
  std::list<Message*>::iterator into_at_ = {};  // its place in posted_
  bool nowhere_ = false;                        // the message is dropped
  Early set_aside_;
  uint64_t arrived_ = 0;  // bytes of the message that have been delivered
  uint64_t taken_ = 0;
};

}  // namespace herd::transport
