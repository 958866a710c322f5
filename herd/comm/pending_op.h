// PendingOp is one operation that a caller has issued, until it has its result. A synchronous operation lives on its
// caller's stack; an asynchronous one is shared with its Work. Threads: written under the engine's lock; done() from
// any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "herd/base/buffer.h"
#include "herd/base/error.h"
#include "herd/base/store.h"
#include "herd/comm/schedule_executor.h"
#include "herd/transport/board.h"
#include "herd/transport/message.h"

namespace herd::comm {

class DeviceSteps;
class GroupState;
class MappedRegions;
class Packing;

enum class PendingOpKind : uint8_t { kCollective, kSend, kReceive };

struct PendingOp {
  PendingOpKind kind = PendingOpKind::kCollective;
  GroupState* group = nullptr;
  std::chrono::milliseconds timeout{60000};  // deadline - issue
  SteadyTime issued{};                       // 0 for a synchronous operation until its first check of health
  std::source_location where;
  std::vector<Buffer> keep_alive;  // memory of an asynchronous operation

  std::shared_ptr<DeviceSteps> device = {};  // what it does on a device; null where its buffers are the host's

  // kCollective
  OperationCall call;
  std::shared_ptr<const MappedRegions> regions;  // symmetric memory that its buffers may lie in
  std::shared_ptr<Packing> packing;              // may be null
  transport::OperationRecord record;
  bool begun = false;
  // kSend, kReceive
  transport::Message message;
  DType dtype = DType::kF32;
  // The transfers that the group had completed at the last check of health, if the peer was gone then.
  std::optional<uint64_t> completed_when_gone;
  bool source_unknown = false;  // true while a receive from any source has no sender yet
  std::string name;

  bool started = false;           // the progress thread finishes it where no other thread does
  std::atomic<bool> done{false};  // read without the lock by Work::done()
  std::optional<Error> error;     // set before done
  SteadyTime finished_at{};       // set before done, for an asynchronous operation only
  std::vector<std::function<void()>> calls_when_done;
  std::shared_ptr<PendingOp> self;  // keeps an asynchronous operation alive while it is in flight
  PendingOp* next = nullptr;        // next operation in the group's queue
};

}  // namespace herd::comm
