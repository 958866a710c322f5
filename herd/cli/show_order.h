// herd show order NAME --ranks P --micro-batches M [--stages-per-rank V] [--text] [--svg FILE]
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace herd::cli {

struct ShowOrderOptions {
  std::string order;
  int ranks = 4, micro_batches = 8, stages_per_rank = 0;  // 0 = what the order has
  bool text = false;
  std::string svg = {};
};

void add_show_order_command(CLI::App& show);
int run_show_order(const ShowOrderOptions& options);  // exit status; throws herd::Error

}  // namespace herd::cli
