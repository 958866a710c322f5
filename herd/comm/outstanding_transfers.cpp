#include "herd/comm/outstanding_transfers.h"

namespace herd::comm {

void OutstandingTransfers::add(PendingOp& transfer) {
  if (transfer.source_unknown) return without_source_.push_back(&transfer);
  Queue& queue = queues_[{transfer.kind, transfer.message.peer, transfer.message.envelope.tag}];
  (queue.first == nullptr ? queue.first : queue.last->next) = &transfer;
  queue.last = &transfer;
}

PendingOp* OutstandingTransfers::first() const {
  if (!queues_.empty()) return queues_.begin()->second.first;
  return without_source_.empty() ? nullptr : without_source_.front();
}

std::vector<PendingOp*> OutstandingTransfers::all() const {
  std::vector<PendingOp*> out = without_source_;
  for (const auto& [key, queue] : queues_) {
    for (PendingOp* transfer = queue.first; transfer != nullptr; transfer = transfer->next) out.push_back(transfer);
  }
  return out;
}

std::vector<PendingOp*> OutstandingTransfers::take_all() {
  std::vector<PendingOp*> out = all();
  for (PendingOp* transfer : out) transfer->next = nullptr;
  queues_.clear();
  without_source_.clear();
  return out;
}

}  // namespace herd::comm
