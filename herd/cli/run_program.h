// Runs another program to its end and returns what it printed.
#pragma once

#include <string>
#include <vector>

namespace herd::cli {

struct ProgramEnd {
  int status = 0;           // exit status, 128 + signal, or 127 where the program can't be started
  std::string output = {};  // standard output and error together
};

// `command` is a path and its arguments; no shell reads them. Standard input is empty. Threads: any.
ProgramEnd run_program(const std::vector<std::string>& command);

}  // namespace herd::cli
