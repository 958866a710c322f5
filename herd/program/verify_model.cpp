#include <algorithm>

#include "herd/program/symbols_internal.h"

namespace herd::program {

Model::Model(const Expectation& expected) : expected_(expected) {}

int Model::coordinate(int rank, const std::string& axis) const {
  const auto& place = expected_.ranks[static_cast<size_t>(rank)];
  const auto at = place.find(axis);
  return at == place.end() ? 0 : at->second;
}

int Model::data_rank(int rank) const {
  int index = 0;
  for (const char* axis : {"dp", "fsdp", "cp"}) {
    const auto size = expected_.mesh.find(axis);
    if (size != expected_.mesh.end()) index = index * size->second + coordinate(rank, axis);
  }
  return index;
}

int Model::data_ranks() const {
  int count = 1;
  for (const char* axis : {"dp", "fsdp", "cp"}) {
    const auto size = expected_.mesh.find(axis);
    if (size != expected_.mesh.end()) count *= size->second;
  }
  return count;
}

std::set<int> Model::groups_of(int rank) const {
  std::set<int> out;
  for (size_t b = 0; b < expected_.block_groups.size(); ++b) {
    const int stage = expected_.block_stage.empty() ? 0 : expected_.block_stage[b];
    if (stage == coordinate(rank, "pp")) out.insert(expected_.block_groups[b].begin(), expected_.block_groups[b].end());
  }
  return out;
}

std::set<int> Model::trained_groups() const {
  std::set<int> out;
  for (const auto& groups : expected_.block_groups) out.insert(groups.begin(), groups.end());
  for (const int group : expected_.frozen) out.erase(group);
  return out;
}

int Model::version(int group, int steps) const { return expected_.frozen.contains(group) ? 0 : steps; }

bool Model::along(const std::string& axis, int a, int b) const {
  for (const char* name : {"cp", "fsdp", "dp"}) {
    const auto size = expected_.mesh.find(name);
    if (size == expected_.mesh.end()) continue;
    if (name != axis && a % size->second != b % size->second) return false;
    a /= size->second;
    b /= size->second;
  }
  return true;
}

std::set<Atom> Model::contributions(int group, int data_rank) const {
  std::set<Atom> out;
  for (int b = 0; b < num_blocks(); ++b) {
    const auto& groups = expected_.block_groups[static_cast<size_t>(b)];
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) continue;
    for (int m = 0; m < expected_.micro_batches; ++m) {
      for (int d = 0; d < data_ranks(); ++d) {
        if (expected_.proof.summed || along(expected_.proof.summed_over, d, data_rank)) out.insert({b, m, d});
      }
    }
  }
  return out;
}

std::vector<int> Model::peers(int rank, const std::string& axis) const {
  const auto size = expected_.mesh.find(axis);
  if (size == expected_.mesh.end()) return {};
  std::vector<int> out;
  for (int index = 0; index < size->second; ++index) out.push_back(peer(rank, axis, index));
  return out;
}

int Model::peer(int rank, const std::string& axis, int index) const {
  auto place = expected_.ranks[static_cast<size_t>(rank)];
  place[axis] = index;
  const auto at = std::find(expected_.ranks.begin(), expected_.ranks.end(), place);
  return at == expected_.ranks.end() ? -1 : static_cast<int>(at - expected_.ranks.begin());
}

}  // namespace herd::program
