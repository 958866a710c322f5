// Measures one algorithm by `herd bench` in a process of its own, since ranks are forked.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/collectives/request.h"

namespace herd::cli {

// Returns the arguments of `herd bench`, after its name: the request as it is.
std::vector<std::string> bench_arguments(const CollectiveRequest& request, std::string_view algorithm, double seconds);

// Throws kBadConfig for a request that no communicator takes: out of place where there is one buffer, or parts of
// unequal size without counts.
void check_measurable(const CollectiveRequest& request);

// Returns median microseconds on this host. REQUIRES check_measurable(request). Returns nothing where `herd bench`
// fails; its output then goes to stderr.
std::optional<double> measure(const CollectiveRequest& request, std::string_view algorithm, double seconds);

}  // namespace herd::cli
