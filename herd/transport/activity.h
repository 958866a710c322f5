// Defines what a rank shows its peers of what it does, in words, and where they find it when they can't ask any more.
// Two slots take turns, so that a rank that dies while it writes leaves what it showed before.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "herd/transport/board.h"

namespace herd::transport {

class ActivityBoard {
 public:
  // Text is cut to 183 bytes. Threads: one writer at a time.
  void write(std::string_view text) {
    Activity activity;
    activity.number = ++written_;
    std::memcpy(activity.text, text.data(), std::min(text.size(), sizeof activity.text - 1));
    slots_[activity.number % slots_.size()].write(activity);
  }
  // The newest text; empty before the first. Any process that maps the board.
  std::string newest() const {
    Activity found;
    for (const auto& slot : slots_) {
      if (const auto activity = slot.newest(); activity && activity->number > found.number) found = *activity;
    }
    found.text[sizeof found.text - 1] = 0;  // the owner may be out of its mind
    return found.text;
  }

 private:
  struct Activity {
    uint64_t number = 0;  // from 1
    char text[184] = {};
  };
  uint64_t written_ = 0;
  std::array<SeqLock<Activity>, 2> slots_;
};

}  // namespace herd::transport
