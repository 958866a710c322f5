// What herd asks of a device beside the CPU: page-locked memory, copies, events. All of it is asynchronous, in the
// order of a stream. The driver of CUDA is in libherd_cuda.so, which is loaded when it is first asked for, so nothing
// else needs CUDA's headers or libraries. Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "herd/base/buffer.h"

namespace herd {

// A point in a stream: it is reached once all work that was enqueued there before is done.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual bool done() const = 0;
  virtual void wait() const = 0;  // blocks the calling thread, without spinning
  // Lets what is enqueued on `stream` from here on wait for this point. The calling thread goes on.
  virtual void hold(StreamHandle stream) const = 0;
};
using DeviceEventPtr = std::shared_ptr<const DeviceEvent>;

// Names memory or an event for other processes of this host.
using DeviceHandle = std::array<std::byte, 64>;

// A point in a stream of one process that streams of other processes wait for. It is recorded again and again; a stream
// waits for the last record before, and for nothing where there is none. The host sees to it that the record comes
// first.
class SharedDeviceEvent {
 public:
  virtual ~SharedDeviceEvent() = default;
  virtual DeviceHandle handle() const = 0;       // by the process that made it
  virtual void record(StreamHandle stream) = 0;  // by the process that made it
  virtual void hold(StreamHandle stream) = 0;    // as DeviceEvent::hold()
};

struct DeviceFacts {
  std::string name;      // "NVIDIA H100 80GB HBM3"
  std::string id;        // the same in all processes, and different for each device
  std::string software;  // "driver 13.0, runtime 13.0"
  int64_t bytes = 0;     // of its memory
};

// Functions throw kBadConfig with the device's own words where it refuses.
class DeviceDriver {
 public:
  virtual ~DeviceDriver() = default;
  virtual int count() const = 0;  // devices of this kind
  // Returns page-locked memory of the host, which the device copies to and from at full speed, and can read and write
  // at the same address.
  virtual void* allocate_host(int64_t bytes) = 0;
  virtual void free_host(void* memory) = 0;
  // Returns a stream that runs beside all others.
  virtual StreamHandle create_stream(int device) = 0;
  virtual void destroy_stream(int device, StreamHandle stream) = 0;
  // Enqueues a copy between the device and page-locked memory, or inside either.
  virtual void copy(void* to, const void* from, int64_t bytes, int device, StreamHandle stream) = 0;
  virtual DeviceEventPtr record(int device, StreamHandle stream) = 0;
  // Calls `function` from a thread of the driver once the work before it is done. It must not call the driver.
  virtual void call(int device, StreamHandle stream, std::function<void()> function) = 0;

  // Memory that other processes of this host may open. A driver that can't share memory leaves these as they are: they
  // throw.
  virtual DeviceFacts facts(int device);
  // Makes the device the calling thread's current one, until the last owner of what it returns is gone.
  virtual std::shared_ptr<void> make_current(int device);
  virtual void* allocate_shared(int64_t bytes, int device);
  virtual void free_shared(void* memory, int device);
  virtual DeviceHandle export_shared(void* memory, int device);
  virtual void* open_shared(const DeviceHandle& handle, int device);  // in this device's processes or its peers'
  virtual void close_shared(void* memory, int device);
  virtual std::unique_ptr<SharedDeviceEvent> make_shared_event(int device);
  virtual std::unique_ptr<SharedDeviceEvent> open_shared_event(const DeviceHandle& handle, int device);
};

// Returns the driver of a kind of device. Throws kBadConfig with the reason and the fix where there is none.
DeviceDriver& device_driver(DeviceKind kind);
// The driver must live as long as the process. A later one of the same kind takes its place.
void register_device_driver(DeviceKind kind, DeviceDriver* driver);

}  // namespace herd
