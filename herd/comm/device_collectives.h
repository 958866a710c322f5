// An engine that runs a group's collectives on device memory. The schedule among the ranks is barriers of the host,
// around which the engine works on streams. Threads: one at a time, in the order of operations.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "herd/base/device_driver.h"
#include "herd/base/reduce_op.h"
#include "herd/comm/device_steps.h"
#include "herd/schedule/schedule.h"

namespace herd::comm {

struct DeviceCollective {
  Schedule header;  // of which the fields before its steps are read
  ReduceOp op = ReduceOp::kSum;
  const std::byte* in = nullptr;  // all_reduce, broadcast, reduce: as out
  std::byte* out = nullptr;
  std::vector<DeviceEventPtr> before;
};

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;
  virtual Device device() const = 0;
  virtual std::string_view name() const = 0;
  virtual bool supports(Collective collective, DType dtype, ReduceOp op, bool reduces) const = 0;
  // Returns what the collective does around each of its barriers, in order.
  virtual std::vector<std::shared_ptr<DeviceSteps>> steps_of(DeviceCollective collective) = 0;
  // Waits until the devices of all ranks are done with this one's memory. REQUIRES that the peers have finished all
  // operations.
  virtual void drain() = 0;
  virtual void leave_open() = 0;  // the group has failed: peers may still use what they were lent
};

}  // namespace herd::comm
