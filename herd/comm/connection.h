// A Connection carries messages between this rank and one peer, and fails alone: the death of one of the two ends it
// and no other group of either. A server with many clients has one for each. Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "herd/base/buffer.h"
#include "herd/base/ids.h"
#include "herd/base/store.h"
#include "herd/comm/communicator.h"

namespace herd::comm {

struct PendingOp;
class ProgressEngine;

// A Transfer is a message in flight. Its destructor does not wait; Buffer::keep_alive holds the memory meanwhile.
class Transfer {
 public:
  Transfer() = default;
  bool valid() const { return pending_ != nullptr; }
  bool done() const;
  void wait();  // returns when the message is sent, or has come; throws its error

 private:
  friend class Connection;
  friend class TransferWait;
  std::shared_ptr<PendingOp> pending_;
};

// Lets one thread wait for transfers of many connections of a world, and other threads interrupt it.
class TransferWait {
 public:
  explicit TransferWait(const Communicator& world);
  // Returns the index of a transfer that is done or has failed; transfers.size() at the deadline, or after interrupt().
  // Passes over those that are not valid, and those that become valid meanwhile.
  size_t wait_any(std::span<const Transfer> transfers, SteadyTime deadline);
  void interrupt();  // ends the present wait_any(), or else the next one. Threads: any

 private:
  std::shared_ptr<ProgressEngine> engine_;
  std::atomic<bool> interrupted_{false};
};

class Connection {
 public:
  // Collective over this rank and `peer`, a rank of `world`; a name serves each pair of ranks once. Throws kBadConfig
  // for this rank itself, kPeerLost or kTimeout where the peer does not come within 60 s.
  Connection(const Communicator& world, Rank peer, std::string_view name);
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;
  ~Connection();

  Rank peer() const { return peer_; }  // the rank in the job
  // Between two ranks the k-th send matches the k-th receive of the same tag; sizes and dtypes must be equal, else both
  // fail with kBadConfig. A receive without a deadline waits as long as the peer lives.
  void send(const Buffer& x, int tag, std::chrono::milliseconds deadline = kNoDeadline);
  void receive(const Buffer& x, int tag, std::chrono::milliseconds deadline = kNoDeadline);
  // Posts a message that moves while some thread of this rank waits for this or any other operation.
  [[nodiscard]] Transfer post_send(const Buffer& x, int tag);
  [[nodiscard]] Transfer post_receive(const Buffer& x, int tag);
  // Fails both ends with kAborted and this reason.
  void abort(const std::string& reason);

  static constexpr std::chrono::milliseconds kNoDeadline = std::chrono::hours(24 * 365);

 private:
  struct State;
  std::unique_ptr<State> state_;
  Rank peer_ = -1;
};

}  // namespace herd::comm
