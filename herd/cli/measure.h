// One algorithm measured by `herd bench` in a process of its own, since ranks are forked.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "herd/collectives/request.h"

namespace herd::cli {

struct Measured {
  double us = 0;            // median
  double predicted_us = 0;  // by the model
};

// On this host. Nothing where `herd bench` fails: what it said goes to stderr.
std::optional<Measured> measure(const CollectiveRequest& request, std::string_view algorithm, double seconds);

}  // namespace herd::cli
