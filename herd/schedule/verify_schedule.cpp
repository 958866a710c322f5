#include "herd/schedule/verify_schedule.h"

#include "herd/schedule/structure_internal.h"
#include "herd/schedule/symbolic_run_internal.h"

namespace herd {

std::string describe(const Finding& finding) {
  std::string text;
  if (finding.rank >= 0) text += "rank " + std::to_string(finding.rank);
  if (finding.step >= 0) text += ", step " + std::to_string(finding.step);
  return text.empty() ? finding.what : text + ": " + finding.what;
}

std::vector<Finding> verify(std::span<const Schedule> all_ranks) {
  std::vector<Finding> findings = check_structure(all_ranks);
  if (!findings.empty()) return findings;
  return SymbolicRun(all_ranks).run();
}

}  // namespace herd
