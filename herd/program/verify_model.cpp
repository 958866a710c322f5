#include <algorithm>

#include "herd/program/program_symbols_internal.h"

namespace herd::program {

Model::Model(const Expectation& expected) : expected_(expected) {
  for (int b = 0; b < num_blocks(); ++b) {
    const auto block = static_cast<size_t>(b);
    inputs_.push_back(expected.block_inputs.empty() ? std::vector<spec::TensorId>{b} : expected.block_inputs[block]);
    for (const spec::TensorId input : inputs_.back()) readers_[input].push_back(b);
    if (split_of(b) == spec::Split::kCut)
      cut_.insert(expected.block_groups[block].begin(), expected.block_groups[block].end());
  }
}

std::set<int> Model::groups_of(int rank) const {
  std::set<int> out;
  for (int b = 0; b < num_blocks(); ++b) {
    const auto& groups = expected_.block_groups[static_cast<size_t>(b)];
    if (runs(rank, b)) out.insert(groups.begin(), groups.end());
  }
  return out;
}

bool Model::runs(int rank, int block) const {
  return !expected_.proof.staged ||
         expected_.block_rank[static_cast<size_t>(block)] == place_of(Divided::kStages, rank);
}

const std::vector<spec::TensorId>& Model::inputs_of(int block) const { return inputs_[static_cast<size_t>(block)]; }

const std::vector<int>& Model::readers_of(spec::TensorId tensor) const {
  static const std::vector<int> nobody;
  const auto found = readers_.find(tensor);
  return found == readers_.end() ? nobody : found->second;
}

std::vector<spec::TensorId> Model::outputs_with_gradient(int block) const {
  if (expected_.block_outputs.empty()) return {block + 1};
  std::vector<spec::TensorId> out;
  const std::vector<bool>& differentiable = expected_.block_outputs[static_cast<size_t>(block)];
  for (int tensor = 0; tensor < static_cast<int>(differentiable.size()); ++tensor) {
    const spec::TensorId id = {block + 1, tensor};
    if (differentiable[static_cast<size_t>(tensor)] && !readers_of(id).empty()) out.push_back(id);
  }
  return out;
}

spec::Split Model::split_of(int block) const {
  const bool shared =
      expected_.proof.blocks_split && axis_of(Divided::kLayers) != kNoAxis && !expected_.block_splits.empty();
  return shared ? expected_.block_splits[static_cast<size_t>(block)] : spec::Split::kNone;
}

int Model::joint_axis(int block) const {
  const auto at = static_cast<size_t>(block);
  const auto is_one_of = [at](const std::vector<bool>& blocks) { return at < blocks.size() && blocks[at]; };
  const bool tokens_cut = expected_.proof.tokens_cut && axis_of(Divided::kTokens) != kNoAxis;
  if (tokens_cut && is_one_of(expected_.block_in_ring)) return axis_of(Divided::kTokens);
  if (tokens_cut && is_one_of(expected_.block_shares_choices)) return axis_of(Divided::kTokens | Divided::kLayers);
  const bool together = is_one_of(expected_.block_shares_choices);
  const bool is_loss = block + 1 == num_blocks();
  const bool share_layer =
      (together && split_of(block) == spec::Split::kSequence) || (is_loss && split_of(block) == spec::Split::kCut);
  return share_layer ? axis_of(Divided::kLayers) : kNoAxis;
}

bool Model::is_by_heads(spec::TensorId tensor) const {
  const auto maker = static_cast<size_t>(tensor.producer) - 1;
  return tensor.producer > 0 && maker < expected_.block_gives_heads.size() && expected_.block_gives_heads[maker] &&
         split_of(static_cast<int>(maker)) == spec::Split::kCut;
}

std::optional<Dimension> Model::cut_by(Divided what, int block, spec::TensorId tensor) const {
  if (what == Divided::kLayers) {
    if (split_of(block) == spec::Split::kSequence && !is_whole(tensor)) return Dimension::kRows;
    if (is_by_heads(tensor)) return Dimension::kHeads;
  }
  if (what == Divided::kTokens && expected_.proof.tokens_cut) {
    const bool by_heads = !expected_.block_by_heads.empty() && expected_.block_by_heads[static_cast<size_t>(block)];
    return by_heads ? Dimension::kHeads : Dimension::kRows;
  }
  if (what == Divided::kExperts && is_by_experts(block)) return Dimension::kExperts;
  return std::nullopt;
}

std::map<int, Cut> Model::cuts_of(int block, spec::TensorId tensor, int rank) const {
  std::map<int, Cut> cuts;
  for (int axis = 0; axis < static_cast<int>(expected_.mesh.axes.size()); ++axis) {
    const Divided divides = expected_.mesh.axes[static_cast<size_t>(axis)].divides;
    if (const auto by = cut_by(divides, block, tensor)) cuts[axis] = {expected_.mesh.index(axis, rank), *by};
  }
  return cuts;
}

bool Model::is_by_experts(int block) const {
  const auto at = static_cast<size_t>(block);
  return expected_.proof.experts_cut && axis_of(Divided::kExperts) != kNoAxis &&
         at < expected_.block_by_experts.size() && expected_.block_by_experts[at];
}

int Model::routed_by(int block) const {
  const auto at = static_cast<size_t>(block);
  const bool exchanges = expected_.proof.experts_cut && axis_of(Divided::kExperts) != kNoAxis;
  return exchanges && at < expected_.block_routed_by.size() ? expected_.block_routed_by[at] : -1;
}

std::vector<int> Model::sources(int rank) const {
  std::vector<int> out;
  for (const int member : expected_.mesh.ranks(axis_of(Divided::kExperts), rank)) out.push_back(gradient_rank(member));
  return out;
}

bool Model::keeps_cache(int block) const {
  const auto at = static_cast<size_t>(block);
  return at < expected_.block_caches.size() && expected_.block_caches[at];
}

bool Model::keeps_routing(int block) const {
  const auto at = static_cast<size_t>(block);
  return expected_.trains && expected_.proof.routing_kept && at < expected_.block_routes.size() &&
         expected_.block_routes[at];
}

bool Model::is_cut(int group) const { return cut_.contains(group); }

bool Model::is_copied(int group) const { return is_cut(group) && expected_.copied_groups.contains(group); }

int Model::copies_of(int group) const {
  return is_copied(group) ? expected_.mesh.size(expected_.copied_groups.at(group)) : 1;
}

bool Model::has_experts(int group) const {
  return expected_.proof.experts_cut && expected_.expert_groups.contains(group);
}

std::vector<int> Model::contributors(int group, int rank) const {
  return expected_.mesh.ranks(has_experts(group) ? axis_of(Divided::kExperts) : kNoAxis, rank);
}

int Model::parts_of(int group) const {
  if (has_experts(group)) return expected_.mesh.size(axis_of(Divided::kExperts));
  if (!is_cut(group)) return 1;
  return expected_.mesh.size(axis_of(Divided::kLayers)) / copies_of(group);
}

int Model::part_of(int group, int rank) const {
  if (has_experts(group)) return place_of(Divided::kExperts, rank);
  if (!is_cut(group)) return 0;
  return place_of(Divided::kLayers, rank) / copies_of(group);
}

int Model::first_contribution_of(int group, int rank) const {
  return has_experts(group) ? part_of(group, rank) * expected_.mesh.size(axis_of(Divided::kLayers)) : 0;
}

bool Model::trains(int rank) const {
  const std::set<int> groups = groups_of(rank);
  return std::any_of(groups.begin(), groups.end(), [&](int group) { return updates(group, rank); });
}

int Model::owner_of(int group) const {
  const auto& owners = expected_.proof.owners;
  return static_cast<size_t>(group) < owners.size() ? owners[static_cast<size_t>(group)] : kNoOwner;
}

bool Model::updates(int group, int rank) const {
  if (expected_.frozen_groups.contains(group)) return false;
  const int owner = owner_of(group);
  return owner == kNoOwner || expected_.mesh.index(expected_.proof.shard_axis, rank) == owner;
}

std::set<int> Model::trained_groups() const {
  std::set<int> out;
  for (const auto& groups : expected_.block_groups) out.insert(groups.begin(), groups.end());
  for (const int group : expected_.frozen_groups) out.erase(group);
  return out;
}

int Model::version(int group, int steps) const {
  return expected_.trains && !expected_.frozen_groups.contains(group) ? steps : 0;
}

std::set<Atom> Model::contributions(int group, int rank) const {
  const int summed_axis = expected_.proof.data_ranks_summed ? axis_of(kContributes) : expected_.proof.summed_axis;
  const int parts = expected_.mesh.size(axis_of(Divided::kLayers));
  const int own_part = place_of(Divided::kLayers, rank);
  std::vector<int> members = expected_.mesh.ranks(summed_axis, rank);
  // Experts are summed at once over the ranks that hold the same ones, and so over all.
  if (has_experts(group))
    members = summed_axis == kNoAxis ? contributors(group, rank) : expected_.mesh.ranks(axis_of(kContributes), rank);
  std::set<Atom> out;
  for (int b = 0; b < num_blocks(); ++b) {
    const auto& groups = expected_.block_groups[static_cast<size_t>(b)];
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) continue;
    if (!expected_.proof.stages_summed && !runs(rank, b)) continue;
    // A block that works on part of the rows contributes that part, or all parts once they are summed. Other blocks
    // contribute part 0.
    int first = 0, last = 0;
    if (split_of(b) == spec::Split::kSequence) {
      first = expected_.proof.rows_summed ? 0 : own_part;
      last = expected_.proof.rows_summed ? parts - 1 : own_part;
    }
    // A group of which other ranks hold copies gets this rank's part, or those of all copies once they are summed.
    if (is_copied(group)) {
      const int copies = copies_of(group);
      first = expected_.proof.copies_summed ? own_part / copies * copies : own_part;
      last = expected_.proof.copies_summed ? first + copies - 1 : own_part;
    }
    first += first_contribution_of(group, rank), last += first_contribution_of(group, rank);
    for (int m = 0; m < expected_.micro_batches; ++m) {
      for (const int member : members) {
        for (int part = first; part <= last; ++part) out.insert({b, m, gradient_rank(member), part});
      }
    }
  }
  return out;
}

}  // namespace herd::program
