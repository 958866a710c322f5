// A device of the tests, torch's "later": its streams run their work only while the host waits for a device, in an
// order drawn by a seed, and its memory can't be touched by the host at any other time. So code that forgets a wait
// between two streams computes with NaNs or old values, and code that reads memory of the device from the host dies,
// on a machine without a GPU.
//   Memory is NaN (0xff) when it is allocated and after it is freed, both in the order of the stream that allocated it.
//   Operations are the CPU's own kernels, so results are the CPU's bits.
//   A pageable copy or an item() waits for the stream, as with CUDA; each such wait of the host is counted.
// Threads: any; devices, streams and memory are one set for the process, so ranks as threads share them.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

namespace herd::later {

// Registers torch's device "later" (PrivateUse1) and herd's driver of DeviceKind::kExtension. Calls after the first
// only set the seed again; the number of devices stays.
void install(uint64_t seed, int num_devices = 1);
c10::Device device(int index = 0);

// Returns how often the host has waited for a device so far: item(), blocking or pageable copies, operations whose
// shapes depend on values, waits for streams and events.
int64_t synchronisations();
// Is called with the reason in the thread that waits, before it does: a test prints from where. Null ends it.
void on_synchronisation(std::function<void(const char* reason)> observer);

// Runs all that is enqueued. For tests; it does not count as a wait.
void run_all();

}  // namespace herd::later
