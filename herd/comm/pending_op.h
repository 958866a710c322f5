// PendingOp is one call of the user, from issue to result. A synchronous one lives on its caller's stack, an
// asynchronous one is shared with its Work. Threads: written under the engine's lock; done() from any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
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

class GroupState;
class MappedRegions;
class Packing;

enum class PendingOpKind : uint8_t { kCollective, kSend, kReceive };

struct PendingOp {
  PendingOpKind kind = PendingOpKind::kCollective;
  GroupState* group = nullptr;
  std::chrono::milliseconds timeout{60000};  // deadline - issue
  SteadyTime issued{};                       // 0 until it is first looked at, for synchronous ones
  std::source_location where;
  std::vector<Buffer> keep_alive;  // memory of asynchronous ones

  // kCollective
  OperationCall call;
  std::shared_ptr<const MappedRegions> regions;  // places of its buffers in symmetric memory
  std::shared_ptr<Packing> packing;              // may be null
  transport::OperationRecord record;
  bool begun = false;
  // kSend, kReceive
  transport::Message message;
  DType dtype = DType::kF32;
  bool peer_seen_gone = false;
  bool source_unknown = false;  // true while a receive from any source has no sender yet
  std::string name;

  std::atomic<bool> done{false};    // read without the lock by Work::done()
  std::optional<Error> error;       // set before done
  SteadyTime finished_at{};         // set before done; asynchronous ones only
  std::shared_ptr<PendingOp> self;  // asynchronous ones: held while in flight
  PendingOp* next = nullptr;        // next one in the group's queue
};

}  // namespace herd::comm
