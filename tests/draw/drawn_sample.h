// Defines the timeline that tests draw: two rows with a bar each.
#pragma once

#include <string>

#include "herd/sim/timeline.h"

namespace herd::draw {

inline sim::Timeline two_rows() {
  return {"a <step>",
          {{"rank 0", "compute"}, {"rank 1", "send"}},
          {{0, "forward 0", "forward", 0, 10}, {1, "send x0", "send", 10, 15, "4 KiB"}}};
}

inline int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace herd::draw
