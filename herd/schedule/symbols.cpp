#include "herd/schedule/symbols_internal.h"

namespace herd {

Symbols::Symbols(int num_ranks) : num_ranks_(num_ranks), nodes_(2) {}

SymbolId Symbols::contribution(Rank rank, int operation) {
  const auto [at, added] = known_.try_emplace({-1, rank, operation}, static_cast<SymbolId>(nodes_.size()));
  if (added) {
    Node node{std::vector<bool>(num_ranks_), 1, operation, false};
    node.ranks[rank] = true;
    nodes_.push_back(std::move(node));
  }
  return at->second;
}

SymbolId Symbols::sum(const std::vector<SymbolId>& terms, bool completes, std::string& rule) {
  for (const SymbolId term : terms) {
    if (term == kNoSymbol || term == kUnknownSymbol) return kUnknownSymbol;  // reported where it was read
  }
  if (terms.size() == 1 && !completes) return terms[0];
  std::vector<int> key = terms;
  key.push_back(completes ? -2 : -3);  // no symbol has such an id
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  Node node{std::vector<bool>(num_ranks_), 0, nodes_[terms[0]].operation, completes};
  for (const SymbolId term : terms) {
    if (nodes_[term].complete) rule = "adds to " + describe(term) + ", which is complete";
    for (Rank rank = 0; rank < num_ranks_; ++rank) {
      if (!nodes_[term].ranks[rank]) continue;
      if (node.ranks[rank]) rule = "adds the contribution of rank " + std::to_string(rank) + " twice";
      node.ranks[rank] = true;
      ++node.num_contributions;
    }
  }
  if (rule.empty() && completes && node.num_contributions != num_ranks_) {
    rule = "completes a value with " + std::to_string(node.num_contributions) + " of " + std::to_string(num_ranks_) +
           " contributions";
  }
  if (!rule.empty()) return kUnknownSymbol;
  nodes_.push_back(std::move(node));
  return known_[key] = static_cast<SymbolId>(nodes_.size()) - 1;
}

std::string Symbols::describe(SymbolId id) const {
  if (id == kNoSymbol) return "nothing";
  if (id == kUnknownSymbol) return "a wrong value";
  const Node& node = nodes_[id];
  std::string text = node.num_contributions == 1 ? "the input of rank" : "the sum of ranks";
  for (Rank rank = 0; rank < num_ranks_; ++rank) {
    if (node.ranks[rank]) text += " " + std::to_string(rank);
  }
  return text + (node.complete ? ", complete" : "");
}

}  // namespace herd
