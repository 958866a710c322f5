#include "herd/bridge/budget_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/bridge/block_pool_internal.h"

namespace herd {
namespace {

thread_local MemoryLabel current_label = MemoryLabel::kOther;

constexpr std::chrono::milliseconds kLongestShortage{100};
constexpr std::chrono::microseconds kPause{50};
constexpr MemoryLabel kNotCounted{0xff};  // of host memory

struct ShortageHandlers {
  std::mutex mutex;
  std::vector<const std::function<bool()>*> handlers;

  // Returns whether memory will be free soon.
  bool free_what_is_not_needed() {
    const std::lock_guard lock(mutex);
    bool soon = false;
    for (const auto* handler : handlers) soon = (*handler)() || soon;
    return soon;
  }
};

ShortageHandlers& shortage_handlers() {
  static auto* instance = new ShortageHandlers;
  return *instance;
}

// Counts the bytes in use against the budget. Threads: any.
struct Counters {
  std::atomic<int64_t> live{0}, peak{0}, budget{0};
  std::array<std::atomic<int64_t>, kNumMemoryLabels> by_label{};

  void add(MemoryLabel label, int64_t bytes) {
    int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    const int64_t limit = budget.load(std::memory_order_relaxed);
    if (limit > 0 && now > limit) now = await_room(label, bytes, limit);
    by_label[static_cast<size_t>(label)].fetch_add(bytes, std::memory_order_relaxed);
    int64_t old_peak = peak.load(std::memory_order_relaxed);
    while (now > old_peak && !peak.compare_exchange_weak(old_peak, now, std::memory_order_relaxed)) {
    }
  }
  void remove(MemoryLabel label, int64_t bytes) {
    live.fetch_sub(bytes, std::memory_order_relaxed);
    by_label[static_cast<size_t>(label)].fetch_sub(bytes, std::memory_order_relaxed);
  }
  // Returns the live bytes, these included, once they fit.
  int64_t await_room(MemoryLabel label, int64_t bytes, int64_t limit) {
    live.fetch_sub(bytes, std::memory_order_relaxed);
    const auto end = std::chrono::steady_clock::now() + kLongestShortage;
    for (bool soon = true; soon && std::chrono::steady_clock::now() < end;) {
      soon = shortage_handlers().free_what_is_not_needed();
      const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
      if (now <= limit) return now;
      live.fetch_sub(bytes, std::memory_order_relaxed);
      if (soon) std::this_thread::sleep_for(kPause);
    }
    refuse(label, bytes);
  }
  [[noreturn]] void refuse(MemoryLabel label, int64_t bytes) const;
};

// The allocator of the device that is counted; null where that is the CPU.
struct CountedDevice {
  std::atomic<c10::DeviceAllocator*> allocator{nullptr};
  c10::DeviceIndex index = 0;

  c10::CachingAllocator::Stat bytes() const {
    constexpr size_t kAll = 0;  // of the kinds of blocks
    return allocator.load()->getDeviceStats(index).requested_bytes[kAll];
  }
};

CountedDevice& counted_device() {
  static auto* instance = new CountedDevice;
  return *instance;
}
bool counts_device() { return counted_device().allocator.load(std::memory_order_relaxed) != nullptr; }

// Both objects are never destroyed, since tensors of static lifetime may be freed after them.
Counters& counters() {
  static auto* instance = new Counters;
  return *instance;
}
BlockPool& pool() {
  static auto* instance = new BlockPool;
  return *instance;
}

void Counters::refuse(MemoryLabel label, int64_t bytes) const {
  throw Error(Code::kOverBudget, format_bytes(static_cast<double>(bytes)) + " more for " +
                                     std::string(memory_label_name(label)) +
                                     " do not fit the device budget: " + DeviceMemory::table() +
                                     "\n  fix: a larger memory.device_budget, a smaller train.micro_batch, or "
                                     "strategy.zero or strategy.recompute");
}

// Counts every CPU tensor of libtorch against the budget, and takes its memory from the pool.
class BudgetAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::kCPU};
    const MemoryLabel label = counts_device() ? kNotCounted : current_label;
    if (label != kNotCounted) counters().add(label, static_cast<int64_t>(bytes));
    void* data = nullptr;
    try {
      data = pool().take(bytes);
    } catch (const std::bad_alloc&) {
      if (label != kNotCounted) counters().remove(label, static_cast<int64_t>(bytes));
      throw Error(Code::kOverBudget, "the system has no " + format_bytes(static_cast<double>(bytes)) +
                                         " left; the device holds " + DeviceMemory::table());
    }
    BlockPool::header(data).bytes = bytes;
    BlockPool::header(data).label = static_cast<uint8_t>(label);
    return {data, data, &free_block, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void free_block(void* data) {
    if (data == nullptr) return;
    const BlockPool::Header& header = BlockPool::header(data);
    const auto label = static_cast<MemoryLabel>(header.label);
    if (label != kNotCounted && !counts_device()) counters().remove(label, static_cast<int64_t>(header.bytes));
    pool().give(data);
  }
};

}  // namespace

std::string_view memory_label_name(MemoryLabel label) {
  constexpr std::array<std::string_view, kNumMemoryLabels> kNames = {"other",  "weights",     "gradients",
                                                                     "states", "activations", "workspace"};
  return kNames[static_cast<size_t>(label)];
}

MemoryLabelGuard::MemoryLabelGuard(MemoryLabel label) : before_(std::exchange(current_label, label)) {}
MemoryLabelGuard::~MemoryLabelGuard() { current_label = before_; }

UncountedMemory::UncountedMemory() : before_(std::exchange(current_label, kNotCounted)) {}
UncountedMemory::~UncountedMemory() { current_label = before_; }

CountedMemory::CountedMemory(MemoryLabel label, int64_t bytes) : label_(label), bytes_(bytes) {
  if (counts_device())
    counters().by_label[static_cast<size_t>(label_)] += bytes_;
  else
    counters().add(label, bytes);
}
CountedMemory::~CountedMemory() {
  if (counts_device())
    counters().by_label[static_cast<size_t>(label_)] -= bytes_;
  else
    counters().remove(label_, bytes_);
}

ShortageHandler::ShortageHandler(std::function<bool()> free) : free_(std::move(free)) {
  const std::lock_guard lock(shortage_handlers().mutex);
  shortage_handlers().handlers.push_back(&free_);
}
ShortageHandler::~ShortageHandler() {
  const std::lock_guard lock(shortage_handlers().mutex);
  std::erase(shortage_handlers().handlers, &free_);
}

void DeviceMemory::install() {
  static const bool done = [] {
    c10::SetCPUAllocator(new BudgetAllocator, /*priority=*/1);
    return true;
  }();
  static_cast<void>(done);
}

void DeviceMemory::count_on(c10::Device device) {
  if (device.is_cpu()) return;
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr) return;
  counted_device().index = device.index();
  for (auto& bytes : counters().by_label) bytes = 0;  // of the CPU's tensors
  counted_device().allocator = allocator;
}

void DeviceMemory::check_budget() {
  if (!counts_device() || budget() == 0 || peak_bytes() <= budget()) return;
  throw Error(Code::kOverBudget, "a peak of " + format_bytes(static_cast<double>(peak_bytes())) +
                                     " does not fit the device budget: " + table() +
                                     "\n  fix: a larger memory.device_budget, a smaller train.micro_batch, or "
                                     "strategy.zero or strategy.recompute");
}

void DeviceMemory::set_budget(int64_t bytes) { counters().budget = bytes; }
int64_t DeviceMemory::budget() { return counters().budget; }
int64_t DeviceMemory::live_bytes() {
  return counts_device() ? counted_device().bytes().current : counters().live.load();
}
int64_t DeviceMemory::live_bytes(MemoryLabel label) {
  const auto labelled = [](MemoryLabel one) { return counters().by_label[static_cast<size_t>(one)].load(); };
  if (!counts_device() || label != MemoryLabel::kActivations) return labelled(label);
  int64_t others = 0;  // a GPU's allocator knows no labels: what herd did not allocate for the whole run is a pass's
  for (int one = 0; one < kNumMemoryLabels; ++one) others += labelled(static_cast<MemoryLabel>(one));
  return std::max<int64_t>(0, live_bytes() - others);
}
int64_t DeviceMemory::peak_bytes() { return counts_device() ? counted_device().bytes().peak : counters().peak.load(); }
void DeviceMemory::reset_peak() {
  if (counts_device())
    counted_device().allocator.load()->resetPeakStats(counted_device().index);
  else
    counters().peak = counters().live.load();
}
int64_t DeviceMemory::cached_bytes() { return pool().cached_bytes(); }
void DeviceMemory::empty_cache() { pool().empty_cache(); }

std::string DeviceMemory::table() {
  std::ostringstream out;
  const auto text = [](int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  out << text(live_bytes()) << " live";
  if (budget() > 0) out << " of " << text(budget());
  for (int label = 0; label < kNumMemoryLabels; ++label) {
    const int64_t bytes = live_bytes(static_cast<MemoryLabel>(label));
    if (bytes > 0) out << "\n  " << memory_label_name(static_cast<MemoryLabel>(label)) << ' ' << text(bytes);
  }
  return out.str();
}

}  // namespace herd
