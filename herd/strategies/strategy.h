// A strategy: one technique, as a pure rewrite of a training step. The order of strategies is one table
// (strategy_table.h). Threads: pure.
#pragma once

#include <string>

#include "herd/program/program.h"

namespace herd::strategies {

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string name() const = 0;  // with its settings: "data_parallel on dp, buckets of 25 MiB"
  // Same input, same text. Neither adds nor expects releases and slots: they come last.
  virtual program::Program rewrite(program::Program step) const = 0;
};

}  // namespace herd::strategies
