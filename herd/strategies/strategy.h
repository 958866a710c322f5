// A strategy is one technique, as a pure rewrite of a training step. One table has the order of strategies
// (techniques.h). Threads: pure.
#pragma once

#include <string>

#include "herd/program/program.h"

namespace herd::strategies {

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string name() const = 0;  // returns the name with its settings: "data_parallel on dp, buckets of 25 MiB"
  // Is deterministic. It neither adds nor expects releases and slots: they are added after the last strategy.
  virtual program::Program rewrite(program::Program step) const = 0;
};

}  // namespace herd::strategies
