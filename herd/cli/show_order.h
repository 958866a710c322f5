// herd show order NAME --ranks P --micro-batches M [--stages-per-rank V] [--text] [--svg FILE]
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace herd::cli {

struct ShowOrderOptions {
  std::string order;
  // 0 = what a file says, or 4, 8 and what the order has.
  int ranks = 0, micro_batches = 0, stages_per_rank = 0;
  bool text = false;
  std::string svg = {};
};

void add_show_order_command(CLI::App& show);
int run_show_order(const ShowOrderOptions& options);  // exit status; throws herd::Error

}  // namespace herd::cli
