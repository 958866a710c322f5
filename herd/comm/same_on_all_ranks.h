// Proves that all ranks describe the same thing, line by line. Where they agree it takes one small all-gather; the text
// travels only to tell the difference. Threads: as Communicator.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "herd/comm/communicator.h"

namespace herd::comm {

// Throws kBadConfig on every rank, with the first line that differs and both ranks: "parameter 3: rank 0 has
// "head.weight [10, 64] fp32", rank 2 has "head.weight [12, 64] fp32"". `what` names a line ("parameter").
// `fix` says what to do.
// Collective.
void check_same_on_all_ranks(Communicator& comm, std::string_view what, const std::vector<std::string>& lines,
                             std::string_view fix);

}  // namespace herd::comm
