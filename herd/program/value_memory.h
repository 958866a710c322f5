// Follows which values have memory while the ops of a step are looked at in some order. An all-reduce of an activation
// or of its gradient sums in place. So `x.partial` and `x` are two values in one buffer, which lives until both are
// released. A graph refers to activations (Program::kept), whose memory then lives until the last of these graphs ends.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "herd/program/program.h"

namespace herd::program {

// Returns where Program::scratch has what an op holds while it runs. An exchange of rows of experts, which is of no
// block, has the block of their router, so that other all-to-alls take none of it.
std::pair<OpKind, int> scratch_key(const Op& op);

class ValueMemory {
 public:
  struct Memory {
    Value owner;
    int64_t bytes = 0;
  };

  explicit ValueMemory(const Program& step);  // borrows the step

  // Returns the value that takes the memory in which a value lies: the partial sum for a whole that is summed in place,
  // else the value itself. If the step makes the partial sum again while the whole lives, they have memory of their
  // own.
  const Value& owner(const Value& value) const;

  std::vector<Memory> take(const Value& value);       // notes a write; returns the memory that it takes
  std::vector<Memory> give_back(const Value& value);  // notes a release; returns the memory that it gives back

 private:
  struct Live {
    std::set<Value> holders;
    int64_t bytes = 0;
  };
  bool release(const Value& owner, const Value& holder, std::vector<Memory>& given);
  int64_t refer_to_kept(const Value& graph);  // returns the bytes of those of which the graph has copies

  const Program& step_;
  std::map<Value, Value> partial_of_;                  // by the whole that is summed in place
  std::map<Value, Live> live_ = {};                    // by owner
  std::map<Value, std::vector<Value>> referred_ = {};  // by graph: owners of the memory that it refers to
};

}  // namespace herd::program
