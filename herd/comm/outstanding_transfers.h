// Holds a group's sends and receives that are not done. Those of one kind, peer and tag end in the order in which they
// began, so a poll looks at the first of each. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "herd/comm/pending_op.h"

namespace herd::comm {

class OutstandingTransfers {
 public:
  void add(PendingOp& transfer);
  bool empty() const { return queues_.empty() && without_source_.empty(); }
  PendingOp* first() const;             // returns one of the oldest; nullptr where there is none
  std::vector<PendingOp*> all() const;  // those of one kind, peer and tag in order
  std::vector<PendingOp*> take_all();   // returns all(), and holds none of them any more

  // Calls `find(transfer)` for each receive from any source that has none yet. It returns true once it has set one.
  template <typename Find>
  bool find_sources(Find&& find) {
    bool found = false;
    for (size_t i = 0; i < without_source_.size();) {
      PendingOp* transfer = without_source_[i];
      if (!find(*transfer)) {
        ++i;
        continue;
      }
      without_source_.erase(without_source_.begin() + static_cast<std::ptrdiff_t>(i));
      add(*transfer);
      found = true;
    }
    return found;
  }

  // Takes out each transfer whose message is done, and calls `done(transfer)`. Returns the first one whose message met
  // another kind of message, nullptr if none has; it stays.
  template <typename Done>
  PendingOp* take_done(Done&& done) {
    for (auto at = queues_.begin(); at != queues_.end();) {
      Queue& queue = at->second;
      while (queue.first != nullptr && queue.first->message.done) {
        PendingOp* transfer = queue.first;
        queue.first = transfer->next;
        transfer->next = nullptr;
        done(*transfer);
      }
      if (queue.first != nullptr && queue.first->message.mismatch) return queue.first;
      at = queue.first == nullptr ? queues_.erase(at) : std::next(at);
    }
    return nullptr;
  }

 private:
  using Key = std::tuple<PendingOpKind, Rank, uint64_t>;  // kind, peer, tag
  struct Queue {
    PendingOp *first = nullptr, *last = nullptr;  // linked by PendingOp::next
  };
  std::map<Key, Queue> queues_;  // none of them empty
  std::vector<PendingOp*> without_source_;
};

}  // namespace herd::comm
