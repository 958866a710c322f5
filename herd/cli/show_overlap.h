// herd show overlap fifo|priority|ideal [--layers L] [--units U] [--credit C] [--svg FILE]
#pragma once

#include <string>

#include "herd/strategies/overlap_picture.h"

namespace CLI {
class App;
}

namespace herd::cli {

struct ShowOverlapOptions {
  strategies::OverlapOptions overlap;
  std::string svg = {};
};

void add_show_overlap_command(CLI::App& show);
int run_show_overlap(const ShowOverlapOptions& options);  // exit status; throws herd::Error

}  // namespace herd::cli
