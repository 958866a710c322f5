// herd explain OP --ranks N --bytes B [--topology FILE] [--json]: every algorithm with its messages, bytes and
// predicted time; the choice and why.
#pragma once

#include <string>

#include "herd/cli/collective_options.h"

namespace herd::cli {

struct ExplainOptions {
  CollectiveOptions collective;
  bool json = false;
};

void add_explain_command(CLI::App& app);
std::string explain(const ExplainOptions& options);  // what the command prints; throws herd::Error

}  // namespace herd::cli
