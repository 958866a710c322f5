#include "herd/cli/bench_device.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "herd/base/elapsed.h"
#include "herd/base/median.h"

namespace herd::cli {
namespace {

constexpr int64_t kLeastProbe = 64 << 20;  // bytes: more than a device's caches hold
constexpr int kCopies = 10;
constexpr int kProbes = 5;

}  // namespace

DeviceTwin::DeviceTwin(Device device, int64_t bytes)
    : device_(device), driver_(device_driver(device.kind)), bytes_(std::max<int64_t>(bytes, 16)) {
  host_ = static_cast<std::byte*>(driver_.allocate_host(bytes_));
  device_memory_ = static_cast<std::byte*>(driver_.allocate_shared(bytes_, device.index));
  stream_ = driver_.create_stream(device.index);
}

DeviceTwin::~DeviceTwin() {
  driver_.destroy_stream(device_.index, stream_);
  driver_.free_shared(device_memory_, device_.index);
  driver_.free_host(host_);
}

void DeviceTwin::write() {
  driver_.copy(device_memory_, host_, bytes_, device_.index, stream_);
  driver_.record(device_.index, stream_)->wait();
}

void DeviceTwin::read() {
  driver_.copy(host_, device_memory_, bytes_, device_.index, stream_);
  driver_.record(device_.index, stream_)->wait();
}

double DeviceTwin::us_of(void* to, const void* from, int64_t bytes, int times) {
  driver_.copy(to, from, bytes, device_.index, stream_);
  driver_.record(device_.index, stream_)->wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) driver_.copy(to, from, bytes, device_.index, stream_);
  driver_.record(device_.index, stream_)->wait();
  return us_since(begin);
}

double DeviceTwin::us_inside(int times) {
  return us_of(device_memory_ + bytes_ / 2, device_memory_, bytes_ / 2, times);
}
double DeviceTwin::us_to_host(int times) { return us_of(host_, device_memory_, bytes_, times); }
double DeviceTwin::us_to_device(int times) { return us_of(device_memory_, host_, bytes_, times); }

DeviceBounds measure_device(Communicator& comm, Device device, int64_t bytes) {
  bytes = std::max(bytes, kLeastProbe);
  std::vector<double> rates(3);
  comm.barrier();
  if (comm.rank() == 0) {
    DeviceTwin probe(device, 2 * bytes);
    std::vector<double> inside, to_host, to_device;
    for (int i = 0; i < kProbes; ++i) {
      inside.push_back(probe.us_inside(kCopies));
      to_host.push_back(probe.us_to_host(1));
      to_device.push_back(probe.us_to_device(1));
    }
    rates = {static_cast<double>(kCopies * bytes) / median(inside) / 1e3,
             static_cast<double>(2 * bytes) / median(to_host) / 1e3,
             static_cast<double>(2 * bytes) / median(to_device) / 1e3};
  }
  comm.broadcast(rates, 0);
  return {rates[0], rates[1], rates[2]};
}

double device_bound(const DeviceBounds& bounds, const BenchKind& kind, int num_ranks, bool on_device) {
  if (on_device) {  // a copy reads and writes each byte
    const BenchShape shape = kind.shape(num_ranks);
    const double moved = num_ranks * shape.share * (shape.inputs + shape.outputs);
    return bounds.copy * 2 / moved;
  }
  // Bytes that leave the device and that enter it, as parts of the message; both ways at the same time.
  const double n = num_ranks;
  const std::string_view op = kind.name;
  const double out = op == "all_reduce" || op == "reduce_scatter" || op == "reduce" || op == "all_to_all" ? n : 1;
  const double in = op == "all_reduce" || op == "all_gather" || op == "all_to_all" ? n
                    : op == "broadcast"                                            ? std::max(1.0, n - 1)
                                                                                   : 1;
  return 1 / std::max(out / bounds.to_host, in / bounds.to_device);
}

}  // namespace herd::cli
