// The device "later" for a test in Python, which loads this library by ctypes once torch is imported.
#include "herd/base/device_driver.h"
#include "tests/device/later_device.h"

extern "C" {

[[gnu::visibility("default")]] void herd_later_install(uint64_t seed) { herd::later::install(seed); }

// Leaves torch the device, and takes herd's driver of it away.
[[gnu::visibility("default")]] void herd_later_remove_driver() {
  herd::register_device_driver(herd::DeviceKind::kExtension, nullptr);
}

[[gnu::visibility("default")]] int64_t herd_later_synchronisations() { return herd::later::synchronisations(); }
}
