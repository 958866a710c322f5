// Defines what an element holds while a schedule runs on symbols: a tree of additions over the ranks' contributions.
// Equal trees have equal ids, so comparing ids tells whether two sums have the same bits. Threads: one at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "herd/base/ids.h"

namespace herd {

using SymbolId = int;
inline constexpr SymbolId kNoSymbol = 0;       // stands for memory that holds nothing
inline constexpr SymbolId kUnknownSymbol = 1;  // stands for the result of a fault that is already reported

class Symbols {
 public:
  explicit Symbols(int num_ranks);

  SymbolId contribution(Rank rank, int operation);  // returns the symbol of a rank's input to an operation
  // Returns the sum of the terms in this order; `completes` says that it is the sum of all ranks. Where it breaks a
  // rule, sets `rule` to it and returns kUnknownSymbol.
  SymbolId sum(const std::vector<SymbolId>& terms, bool completes, std::string& rule);

  int operation_of(SymbolId id) const { return nodes_[id].operation; }  // returns the operation it is made in
  // Tells whether every rank has contributed.
  bool is_full(SymbolId id) const { return nodes_[id].num_contributions == num_ranks_; }
  bool is_complete(SymbolId id) const { return nodes_[id].complete; }  // tells whether a step has completed it
  std::string describe(SymbolId id) const;                             // returns "the sum of ranks 0 1 3"

 private:
  struct Node {
    std::vector<bool> ranks;  // by rank, whether it has contributed
    int num_contributions = 0;
    int operation = -1;
    bool complete = false;
  };

  int num_ranks_;
  std::vector<Node> nodes_;
  std::map<std::vector<int>, SymbolId> known_;  // by terms, so that equal trees get one id
};

}  // namespace herd
