#include "herd/sim/timeline.h"

#include <algorithm>

namespace herd::sim {

double end_us(const Timeline& timeline) {
  double end = 0;
  for (const Span& span : timeline.spans) end = std::max(end, span.end_us);
  return end;
}

}  // namespace herd::sim
