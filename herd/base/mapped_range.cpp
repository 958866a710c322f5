#include "herd/base/mapped_range.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "herd/base/printable.h"

namespace herd {
namespace {

constexpr size_t kMaxRanges = 256, kMaxPath = 4096;

struct NamedRange {
  std::atomic<uintptr_t> begin = 0, end = 0;  // end 0 = nothing is there
  size_t file_begin = 0;
  char path[kMaxPath] = {};
};

// A signal handler may read it at any time, so it has constant memory and is never destroyed.
std::array<NamedRange, kMaxRanges>& ranges() {
  static auto* const all = new std::array<NamedRange, kMaxRanges>;
  return *all;
}
std::array<NamedRange, kMaxRanges>* seen_by_handler = nullptr;
struct sigaction before = {};  // what the program had for SIGBUS
std::mutex mutex;

// Collects text without any call that a signal handler may not make.
struct Message {
  char text[kMaxPath + 512];
  size_t size = 0;
  void add(const char* more) {
    const size_t count = std::min(std::strlen(more), sizeof text - size);
    std::memcpy(text + size, more, count);
    size += count;
  }
  void add(size_t number) {
    char digits[24] = {};
    char* at = digits + sizeof digits - 1;
    do *--at = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    add(at);
  }
};

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const NamedRange& range : *seen_by_handler) {
    if (info->si_code <= 0 || at < range.begin.load() || at >= range.end.load()) continue;
    Message message;
    message.add("kStorage: can't read byte ");
    message.add(range.file_begin + (at - range.begin.load()));
    message.add(" of ");
    message.add(range.path);
    message.add(
        ", which is mapped: its drive fails, or it was cut meanwhile\n  fix: check that drive (dmesg), or put the file "
        "back as it was, and start again\n");
    [[maybe_unused]] const ssize_t wrote = ::write(STDERR_FILENO, message.text, message.size);
    break;
  }
  ::sigaction(signal, &before, nullptr);    // the access is made again, and ends the process as it would have
  if (info->si_code <= 0) ::raise(signal);  // somebody sent it: there is no access
}

void install_handler() {
  static const bool once = [] {
    seen_by_handler = &ranges();
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &action, &before) == 0;
  }();
  static_cast<void>(once);
}

}  // namespace

MappedRange::MappedRange(std::span<const std::byte> bytes, const std::string& path, size_t file_begin) {
  if (bytes.empty()) return;
  const std::lock_guard lock(mutex);
  install_handler();
  for (size_t i = 0; i < kMaxRanges && place_ < 0; ++i) {
    NamedRange& range = ranges()[i];
    if (range.end.load() != 0) continue;
    place_ = static_cast<int>(i);
    range.file_begin = file_begin;
    const std::string shown = printable(path).substr(0, kMaxPath - 1);
    std::memcpy(range.path, shown.c_str(), shown.size() + 1);
    range.begin = reinterpret_cast<uintptr_t>(bytes.data());
    range.end = range.begin + bytes.size();
  }
}

MappedRange::~MappedRange() {
  if (place_ >= 0) ranges()[static_cast<size_t>(place_)].end = 0;
}

MappedRange::MappedRange(MappedRange&& other) noexcept : place_(std::exchange(other.place_, -1)) {}

}  // namespace herd
