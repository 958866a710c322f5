// herd show schedule OP --ranks N --bytes B [--algorithm A] [--rank R] [--states] [--text] [--svg FILE] [--trace FILE]
// [--html FILE]
#pragma once

#include <string>

#include "herd/cli/collective_options.h"

namespace herd::cli {

struct ShowScheduleOptions {
  CollectiveOptions collective;
  std::string algorithm = {};  // empty = the chosen one
  int rank = -1;               // text of this rank; -1 = all
  bool states = false;         // what ranks hold, in place of steps
  bool text = false;           // also where a file is written
  std::string svg = {}, trace = {}, html = {};
};

void add_show_schedule_command(CLI::App& show);
int run_show_schedule(const ShowScheduleOptions& options);  // exit status; throws herd::Error

}  // namespace herd::cli
