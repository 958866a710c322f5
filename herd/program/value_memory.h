// Follows which values have memory while the ops of a step are looked at in some order. An all-reduce of an activation
// or of its gradient sums in place. So `x.partial` and `x` are two values in one buffer, which lives until both are
// released. Threads: one thread at a time.
#pragma once

#include <map>
#include <set>

#include "herd/program/program.h"

namespace herd::program {

class ValueMemory {
 public:
  explicit ValueMemory(const Program& step);  // does not keep the step

  // Returns the value that takes the memory in which a value lies: the partial sum for a whole that is summed in place,
  // else the value itself. If the step makes the partial sum again while the whole lives, they have memory of their
  // own.
  const Value& owner(const Value& value) const;

  bool take(const Value& value);       // notes a write; tells whether it takes memory
  bool give_back(const Value& value);  // notes a release; tells whether it gives memory back

 private:
  std::map<Value, Value> partial_of_;           // by the whole that is summed in place
  std::map<Value, std::set<Value>> live_ = {};  // by owner
};

}  // namespace herd::program
