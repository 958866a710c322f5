// Defines what an element holds while a schedule runs on symbols: a tree of additions over contributions. Equal trees
// have equal ids, so "the same bits" is one comparison. Threads: plain data.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "herd/base/ids.h"

namespace herd {

using SymbolId = int;
inline constexpr SymbolId kNoSymbol = 0;       // memory that holds nothing
inline constexpr SymbolId kUnknownSymbol = 1;  // the result of something already reported

class Symbols {
 public:
  explicit Symbols(int num_ranks);

  SymbolId contribution(Rank rank, int operation);
  // The sum in this order. `rule` gets the rule that the sum breaks; the result then is kUnknownSymbol.
  SymbolId sum(const std::vector<SymbolId>& terms, bool completes, std::string& rule);

  int operation_of(SymbolId id) const { return nodes_[id].operation; }
  bool is_full(SymbolId id) const { return nodes_[id].num_contributions == num_ranks_; }
  bool is_complete(SymbolId id) const { return nodes_[id].complete; }
  std::string describe(SymbolId id) const;  // "the sum of ranks 0 1 3"

 private:
  struct Node {
    std::vector<bool> ranks;
    int num_contributions = 0;
    int operation = -1;
    bool complete = false;
  };

  int num_ranks_;
  std::vector<Node> nodes_;
  std::map<std::vector<int>, SymbolId> known_;
};

}  // namespace herd
