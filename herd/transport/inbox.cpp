#include "herd/transport/inbox.h"

#include <algorithm>
#include <utility>

namespace herd::transport {

void Inbox::post(Message& message) {
  if (dropped_) return;
  if (by_tag_) {
    const auto found = std::find_if(early_.begin(), early_.end(),
                                    [&](const Early& early) { return early.envelope.tag == message.envelope.tag; });
    if (found != early_.end()) {
      hand_over(message, *found);
      early_.erase(found);
      return;
    }
  }
  posted_.push_back(&message);
  while (!kept_.empty() && wanted()) {
    const Piece piece = std::move(kept_.front());
    kept_.pop_front();
    take(piece.envelope, piece.offset, piece.payload);
  }
}

void Inbox::arrive(const Envelope& envelope, uint64_t offset, std::span<const std::byte> payload) {
  if (dropped_) return;
  if (!kept_.empty() || !wanted()) {
    kept_.push_back({envelope, offset, {payload.begin(), payload.end()}});
  } else {
    take(envelope, offset, payload);
  }
}

bool Inbox::has_unclaimed_message(uint64_t tag) {
  const auto has_tag = [&](const auto& one) { return one.envelope.tag == tag; };
  if (std::any_of(early_.begin(), early_.end(), has_tag)) return true;
  const auto will_take = [&](const Message* message) { return message->envelope.tag == tag && !message->mismatch; };
  if (std::any_of(posted_.begin(), posted_.end(), will_take)) return false;
  while (true) {
    if (active_ && into_ == nullptr && !nowhere_ && set_aside_.envelope.tag == tag) return true;
    if (kept_.empty()) return false;
    if (!active_ && has_tag(kept_.front())) return true;
    const Piece piece = std::move(kept_.front());
    kept_.pop_front();
    take(piece.envelope, piece.offset, piece.payload);
  }
}

void Inbox::drop() {
  dropped_ = true;
  posted_.clear();
  kept_.clear();
  early_.clear();
  into_ = nullptr;
}

void Inbox::take(const Envelope& envelope, uint64_t offset, std::span<const std::byte> payload) {
  if (!active_) begin(envelope);
  if (offset != arrived_ || payload.size() > set_aside_.envelope.bytes - arrived_) return;  // no herd sends this
  if (into_ != nullptr)
    into_->take(payload);
  else if (!nowhere_)
    set_aside_.bytes.insert(set_aside_.bytes.end(), payload.begin(), payload.end());
  arrived_ += payload.size();
  taken_ += payload.size() + kPieceCharge;
  if (arrived_ == set_aside_.envelope.bytes) finish();
}

void Inbox::begin(const Envelope& envelope) {
  active_ = true;
  into_ = nullptr;
  nowhere_ = false;
  set_aside_ = {envelope, {}};
  arrived_ = 0;
  const auto matches = [&](const Message* message) {
    return !message->mismatch && (!by_tag_ || message->envelope.tag == envelope.tag);
  };
  const auto found = by_tag_ ? std::find_if(posted_.begin(), posted_.end(), matches) : posted_.begin();
  if (found == posted_.end()) return;
  Message& message = **found;
  nowhere_ = message.mismatch;  // a lane ends with its first mismatch
  if (nowhere_) return;
  message.started = true;
  nowhere_ = !message.accept(envelope);
  if (!nowhere_) into_ = &message, into_at_ = found;
  if (nowhere_ && by_tag_) posted_.erase(found);
}

void Inbox::finish() {
  active_ = false;
  if (into_ != nullptr) {
    posted_.erase(into_at_);
    into_->done = true;
    into_ = nullptr;
    return;
  }
  if (nowhere_) return;
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const Message* message) {
    return !message->mismatch && message->envelope.tag == set_aside_.envelope.tag;
  });
  if (found == posted_.end()) {
    early_.push_back(std::move(set_aside_));
    return;
  }
  Message& message = **found;
  posted_.erase(found);
  hand_over(message, set_aside_);
}

void Inbox::hand_over(Message& message, const Early& early) {
  message.started = true;
  if (message.accept(early.envelope)) message.take(early.bytes);
  message.done = !message.mismatch;
}

}  // namespace herd::transport
