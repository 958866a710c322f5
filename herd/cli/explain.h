// herd explain OP --ranks N --bytes B [--topology FILE] [--all] [--all-workers] [--measure] [--tuning FILE] [--json]:
// every algorithm with its messages, bytes and predicted time; the choice and why.
#pragma once

#include <string>

#include "herd/cli/collective_options.h"

namespace herd::cli {

struct ExplainOptions {
  CollectiveOptions collective;
  bool all = false;                // also what is never chosen inside a host
  bool aggregate_traffic = false;  // and the view that counts all ranks together
  bool measure = false;            // and what `herd bench` takes here
  std::string tuning_file = {};
  bool json = false;
};

void add_explain_command(CLI::App& app);
std::string explain(const ExplainOptions& options);  // what the command prints; throws herd::Error

}  // namespace herd::cli
