//   herd explain OP --ranks N --bytes B [--topology FILE] [--all] [--all-workers] [--measure] [--tuning FILE]
//     [--device cuda] [--json]
// The command prints every algorithm with its messages, bytes and predicted time, and the choice with its reason. With
// --device, also how buffers on this host's devices move, and why.
#pragma once

#include <string>

#include "herd/cli/collective_options.h"

namespace herd::cli {

struct ExplainOptions {
  CollectiveOptions collective;
  bool all = false;                // also what is never chosen inside a host
  bool aggregate_traffic = false;  // also the view that counts all ranks together
  bool measure = false;            // also what `herd bench` takes here
  std::string tuning_file = {};
  std::string device = "cpu";
  bool json = false;
};

void add_explain_command(CLI::App& app);
std::string explain(const ExplainOptions& options);  // returns what the command prints; throws herd::Error

}  // namespace herd::cli
