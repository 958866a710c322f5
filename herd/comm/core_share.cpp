#include "herd/comm/core_share.h"

#include <algorithm>

#include "herd/launch/cores.h"

namespace herd::comm {
namespace {

int ranks_of_host(const transport::Transport& transport) {
  const int host = transport.host_of(transport.rank());
  int ranks = 0;
  for (Rank rank = 0; rank < transport.size(); ++rank) ranks += transport.host_of(rank) == host;
  return ranks;
}

}  // namespace

double cores_per_rank(const transport::Transport& transport) {
  return std::min(1.0 * launch::host_cores() / ranks_of_host(transport),
                  1.0 * launch::machine_cores() / transport.ranks_of_machine());
}

bool on_one_machine(const transport::Transport& transport) { return transport.ranks_of_machine() == transport.size(); }

int cores_for_ranks_of_host(const transport::Transport& transport) {
  // 1e-9: a quotient times its divisor may lie just below a whole number.
  return std::max(1, static_cast<int>(cores_per_rank(transport) * ranks_of_host(transport) + 1e-9));
}

}  // namespace herd::comm
