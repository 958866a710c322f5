#include "herd/comm/transfer.h"

#include "herd/comm/collective_call.h"

namespace herd::comm {

void fill_transfer(Task& task, GroupState& group, TaskKind kind, const Buffer& x, Rank peer, int tag,
                   const OpOptions& options) {
  check_buffer(x, kind == TaskKind::kSend ? "send" : "receive");
  check_in_order(x, kind == TaskKind::kSend ? "send" : "receive");
  if (kind == TaskKind::kSend || peer != kAnySource)
    check_rank(peer, group.size(), kind == TaskKind::kSend ? "send: rank" : "receive: rank");
  task.kind = kind;
  task.group = &group;
  task.where = options.where;
  task.name = options.name;
  task.dtype = x.dtype;
  task.patience = options.deadline.count() > 0 ? options.deadline : group.settings().deadline;
  task.message.peer = peer;
  task.message.lane = transport::Lane::kPointToPoint;
  task.message.data = static_cast<std::byte*>(x.ptr);
  task.message.granule = size_of(x.dtype);
  task.message.envelope = {static_cast<uint64_t>(static_cast<int64_t>(tag)), static_cast<uint64_t>(x.bytes()),
                           static_cast<uint64_t>(x.dtype) + 1};
}

void send_now(GroupState& group, const Buffer& x, Rank to, int tag, const OpOptions& options) {
  Task task;
  fill_transfer(task, group, TaskKind::kSend, x, to, tag, options);
  group.engine().run(task);
}

void receive_now(GroupState& group, const Buffer& x, Rank from, int tag, const OpOptions& options) {
  Task task;
  fill_transfer(task, group, TaskKind::kReceive, x, from, tag, options);
  group.engine().run(task);
}

}  // namespace herd::comm
