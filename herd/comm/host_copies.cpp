#include "herd/comm/host_copies.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "herd/base/error.h"
#include "herd/comm/page_locked_pool.h"

namespace herd::comm {
namespace {

constexpr int64_t kAlignment = 64;  // of the copies of inputs and outputs

Device device_of_all(std::span<const Buffer> reads, std::span<const Buffer> writes, std::string_view what) {
  const Buffer* first = nullptr;
  for (const auto& buffers : {reads, writes}) {
    for (const Buffer& buffer : buffers) {
      if (buffer.count == 0) continue;
      if (buffer.ptr == nullptr) {
        throw Error(Code::kBadConfig,
                    std::string(what) + ": the buffer has " + std::to_string(buffer.count) + " elements and no memory");
      }
      if (first == nullptr) first = &buffer;
      if (buffer.device == first->device) continue;
      throw Error(Code::kBadConfig,
                  std::string(what) + ": its buffers are on different devices\n  fix: copy them to one device first");
    }
  }
  return first == nullptr ? Device{} : first->device;
}

}  // namespace

DeviceLanes::DeviceLanes(Device device)
    : device_(device),
      driver_(device_driver(device.kind)),
      to_host_(driver_.create_stream(device.index)),
      to_device_(driver_.create_stream(device.index)) {}

DeviceLanes::~DeviceLanes() {
  driver_.destroy_stream(device_.index, to_host_);
  driver_.destroy_stream(device_.index, to_device_);
}

std::shared_ptr<DeviceLanes> DeviceLanesTable::of(Device device) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<DeviceLanes>& lanes = lanes_[{device.kind, device.index}];
  if (lanes == nullptr) lanes = std::make_shared<DeviceLanes>(device);
  return lanes;
}

HostCopies::HostCopies(std::shared_ptr<transport::Transport> transport, DeviceLanesTable& lanes,
                       std::span<const Buffer> reads, std::span<const Buffer> writes, std::string_view what)
    : transport_(std::move(transport)) {
  const Device device = device_of_all(reads, writes, what);
  if (device.kind == DeviceKind::kCpu) return;  // there are no elements
  lanes_ = lanes.of(device);
  find_extents(reads, writes);
  memory_ = PageLockedPool::of(device.kind).take(place_extents(reads, writes));
  std::set<StreamHandle> streams;
  for (const auto& buffers : {reads, writes}) {
    for (const Buffer& buffer : buffers) {
      if (buffer.count > 0 && streams.insert(buffer.stream).second)
        before_.push_back(lanes_->driver().record(device.index, buffer.stream));
    }
  }
  stores_ = pieces_of(writes);
  const std::vector<Piece> loads = pieces_of(reads);
  if (loads.empty()) return;
  for (const DeviceEventPtr& event : before_) event->hold(lanes_->to_host());
  for (const Piece& piece : loads)
    lanes_->driver().copy(piece.host, piece.device, piece.bytes, device.index, lanes_->to_host());
  loaded_ = signal_after(lanes_->to_host());
}

void HostCopies::find_extents(std::span<const Buffer> reads, std::span<const Buffer> writes) {
  for (const auto& buffers : {writes, reads}) {
    for (const Buffer& buffer : buffers) {
      if (buffer.count == 0) continue;
      auto* begin = static_cast<std::byte*>(buffer.ptr);
      extents_.push_back({begin, begin + buffer.bytes()});
    }
  }
  std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  std::vector<Extent> merged;
  for (const Extent& extent : extents_) {
    if (!merged.empty() && extent.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, extent.end);
    else
      merged.push_back(extent);
  }
  extents_ = std::move(merged);
}

// Gives each extent its place, in the order of the buffers. Returns the bytes of all.
int64_t HostCopies::place_extents(std::span<const Buffer> reads, std::span<const Buffer> writes) {
  int64_t bytes = 0;
  for (const auto& buffers : {writes, reads}) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    for (const Buffer& buffer : buffers) {
      auto* extent = const_cast<Extent*>(extent_of(buffer));
      if (extent == nullptr || extent->offset >= 0) continue;
      extent->offset = bytes;
      bytes += extent->end - extent->begin;
    }
  }
  return bytes;
}

// A buffer of no elements belongs to an extent that it stands in, so that it keeps its place there.
const HostCopies::Extent* HostCopies::extent_of(const Buffer& buffer) const {
  const auto* begin = static_cast<const std::byte*>(buffer.ptr);
  const auto after = std::upper_bound(extents_.begin(), extents_.end(), begin,
                                      [](const std::byte* at, const Extent& extent) { return at < extent.begin; });
  if (after == extents_.begin()) return nullptr;
  const Extent& extent = *std::prev(after);
  return begin + buffer.bytes() <= extent.end ? &extent : nullptr;
}

Buffer HostCopies::of(const Buffer& buffer) const {
  Buffer copy = {nullptr, buffer.count, buffer.dtype};
  copy.layout = buffer.layout;
  if (const Extent* extent = extent_of(buffer); extent != nullptr)
    copy.ptr = memory_.get() + extent->offset + (static_cast<std::byte*>(buffer.ptr) - extent->begin);
  return copy;
}

std::vector<Buffer> HostCopies::of(std::span<const Buffer> buffers) const {
  std::vector<Buffer> copies;
  copies.reserve(buffers.size());
  for (const Buffer& buffer : buffers) copies.push_back(of(buffer));
  return copies;
}

// Pieces that follow each other on both sides are one.
std::vector<HostCopies::Piece> HostCopies::pieces_of(std::span<const Buffer> buffers) const {
  std::vector<Piece> pieces;
  for (const Buffer& buffer : buffers) {
    if (buffer.count == 0) continue;
    const Piece piece = {static_cast<std::byte*>(buffer.ptr), static_cast<std::byte*>(of(buffer).ptr), buffer.bytes()};
    if (!pieces.empty() && pieces.back().device + pieces.back().bytes == piece.device &&
        pieces.back().host + pieces.back().bytes == piece.host)
      pieces.back().bytes += piece.bytes;
    else
      pieces.push_back(piece);
  }
  return pieces;
}

// The signal holds the memory, since an operation that fails may end before its copies do.
std::shared_ptr<HostCopies::Signal> HostCopies::signal_after(StreamHandle stream) {
  auto signal = std::make_shared<Signal>();
  signal->transport = transport_;
  signal->memory = memory_;
  lanes_->driver().call(lanes_->device(), stream, [signal] {
    signal->done.store(true, std::memory_order_release);
    signal->transport->wake();
  });
  return signal;
}

void HostCopies::store() {
  if (stores_.empty()) return;
  try {
    for (const DeviceEventPtr& event : before_) event->hold(lanes_->to_device());
    for (const Piece& piece : stores_)
      lanes_->driver().copy(piece.device, piece.host, piece.bytes, lanes_->device(), lanes_->to_device());
    stored_ = signal_after(lanes_->to_device());
  } catch (...) {
    refusal_ = std::current_exception();
  }
}

bool HostCopies::stored() {
  if (refusal_ != nullptr) std::rethrow_exception(refusal_);
  return stored_ == nullptr || stored_->done.load(std::memory_order_acquire);
}

}  // namespace herd::comm
