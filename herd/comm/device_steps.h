// What an operation does on a device before and after its schedule, which knows the host alone: copies to the host and
// back, or all of the work, where the schedule is only the signal between the ranks. Nothing here blocks.
// Threads: under the engine's lock.
#pragma once

#include <string>

namespace herd::comm {

class DeviceSteps {
 public:
  virtual ~DeviceSteps() = default;
  // Returns true once the schedule may run. A step of the device that ends wakes the rank, which asks again.
  virtual bool load() = 0;
  virtual void store() = 0;   // begins what follows the schedule; called once
  virtual bool stored() = 0;  // throws what the device refused
  // Tells whether the rank's device waits for its peers' devices after the schedule, too.
  virtual bool needs_peers() const { return false; }
};

}  // namespace herd::comm
