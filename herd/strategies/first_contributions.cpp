#include "herd/strategies/first_contributions.h"

#include <set>

namespace herd::strategies {

void let_first_contributions_write(std::vector<program::Op>& ops) {
  std::set<program::Value> written;
  for (program::Op& op : ops) {
    for (const program::Value& value : op.writes) {
      if (value.kind != program::ValueKind::kGradient) continue;
      std::erase(op.reads, value);
      if (!written.insert(value).second) op.reads.push_back(value);
    }
  }
}

}  // namespace herd::strategies
