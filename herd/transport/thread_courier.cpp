#include "herd/transport/thread_courier.h"

#include <fcntl.h>

#include "herd/base/error.h"

namespace herd::transport {

ThreadCourier::~ThreadCourier() {
  std::lock_guard lock(hub_->mutex_);
  hub_->states_[static_cast<size_t>(rank_)] = PeerState::kGone;
  hub_->changed_.notify_all();
}

void ThreadCourier::send(Rank to, const std::string& key, const Parcel& parcel) {
  Parcel copy = parcel;
  if (parcel.descriptor >= 0) copy.descriptor = fcntl(parcel.descriptor, F_DUPFD_CLOEXEC, 0);
  std::lock_guard lock(hub_->mutex_);
  hub_->parcels_[{rank_, to, key}] = std::move(copy);
  hub_->changed_.notify_all();
}

Parcel ThreadCourier::receive(Rank from, const std::string& key, SteadyTime deadline) {
  std::unique_lock lock(hub_->mutex_);
  const std::tuple parcel_key{from, rank_, key};
  const auto here = [&] { return hub_->parcels_.contains(parcel_key); };
  const auto gone = [&] { return hub_->states_[static_cast<size_t>(from)] == PeerState::kGone; };
  if (!hub_->changed_.wait_until(lock, deadline, [&] { return here() || gone(); })) {
    throw Error(Code::kTimeout, "rank " + std::to_string(from) + " did not come to \"" + key + "\"");
  }
  if (!here()) throw Error(Code::kPeerLost, "rank " + std::to_string(from) + " is gone, before \"" + key + "\"");
  Parcel parcel = std::move(hub_->parcels_[parcel_key]);
  hub_->parcels_.erase(parcel_key);
  return parcel;
}

PeerState ThreadCourier::state(Rank peer) {
  std::lock_guard lock(hub_->mutex_);
  return hub_->states_[static_cast<size_t>(peer)];
}

std::string ThreadCourier::describe(Rank peer) {
  return state(peer) == PeerState::kGone ? "its thread has ended" : "its thread is alive";
}

}  // namespace herd::transport
