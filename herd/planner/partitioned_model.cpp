#include "herd/planner/partitioned_model_internal.h"

#include <utility>

#include "herd/strategies/recompute.h"
#include "herd/strategies/shared_groups.h"
#include "herd/strategies/techniques.h"
#include "herd/strategies/zero1.h"
#include "herd/strategies/zero3.h"

namespace herd::planner {
namespace {

std::string axis_of_shards(const spec::Layout& layout) {
  if (layout.fsdp > 1) return "fsdp";
  const int axis = layout.mesh.dividing(Divided::kSamples | Divided::kTokens);
  return axis == kNoAxis ? "dp" : layout.mesh.axes[static_cast<size_t>(axis)].name;
}

}  // namespace

std::optional<spec::Unsupported> beyond_equations(const spec::RunFile& run, const spec::Layout& layout) {
  // The equations cover these settings, though no rewrite exists for them, or one that does nothing by itself.
  static const std::vector<spec::SupportedValues> without_rewrite = {{"mesh.cp", {}},
                                                                     {"strategy.context", {std::string("ring")}},
                                                                     {"strategy.window", {}},
                                                                     {"strategy.partition_bytes", {}},
                                                                     {"strategy.credit", {}}};
  if (auto setting = strategies::first_setting_without_equations(run, without_rewrite)) return setting;
  if (run.model.is_moe() && layout.tp > 1)
    return spec::Unsupported{"mesh.tp = " + std::to_string(layout.tp) + " of a mixture of experts", "mesh.tp = 1"};
  const bool one_stage_a_rank = layout.pipeline.stages_per_rank == 1 && spec::order_file_of(run).empty();
  if (layout.pp == 1 || one_stage_a_rank) return std::nullopt;
  return spec::Unsupported{"strategy.pipeline = \"" + run.strategy.pipeline + "\"",
                           "strategy.pipeline = \"1f1b\", an order of one stage a rank"};
}

PartitionedModel::PartitionedModel(const spec::RunFile& of, const spec::Layout& cut, spec::ModelTable table)
    : run(of),
      layout(cut),
      model(std::move(table)),
      first(static_cast<size_t>(model.first_trained())),
      shards(cut.fsdp > 1 ? cut.fsdp : cut.dp * cut.cp),
      axis(axis_of_shards(cut)),
      zero(strategies::zero_stage(of, cut)),
      segment(static_cast<size_t>(
          strategies::recompute_interval(of.strategy.recompute, static_cast<int>(model.blocks.size()) - 2))),
      stage_of_blocks_(spec::stage_of_blocks(model, cut.pp, cut.pipeline)) {}

std::set<int> PartitionedModel::groups_of(const BlockInterval& blocks) const {
  std::set<int> groups;
  for (size_t b = blocks.begin; b < blocks.end; ++b)
    groups.insert(model.blocks[b].groups.begin(), model.blocks[b].groups.end());
  return groups;
}

bool PartitionedModel::ends_share_groups() const { return strategies::axis_of_tied_groups(layout) != kNoAxis; }

double PartitionedModel::trained_elements(const BlockInterval& blocks) const {
  double sum = 0;
  for (const int g : groups_of(blocks)) sum += frozen(g) ? 0 : static_cast<double>(model.group_elements(g));
  return sum;
}

double PartitionedModel::whole_elements(const BlockInterval& blocks) const {
  double sum = 0;
  for (const int g : groups_of(blocks)) {
    if (frozen(g)) continue;
    for (const spec::ParameterShape& parameter : model.groups[static_cast<size_t>(g)].parameters)
      sum += parameter.cut_dim < 0 ? static_cast<double>(parameter.elements()) : 0;
  }
  return sum;
}

int64_t PartitionedModel::weight_bytes(int group) const {
  return model.group_elements(group) * size_of(model.compute_dtype);
}

int64_t PartitionedModel::shard_bytes(int group) const { return spec::shard_bytes(weight_bytes(group), shards); }

double PartitionedModel::gradient_ratio() const {
  return static_cast<double>(size_of(model.gradient_dtype)) / static_cast<double>(size_of(model.compute_dtype));
}

Visits PartitionedModel::visits(const BlockInterval& blocks) const {
  Visits out;
  std::map<int, int> gathers;
  int visit = 0;
  const auto visit_block = [&](size_t b, bool weights) {
    ++visit;
    for (const int g : model.blocks[b].groups) {
      if (!weights) continue;
      out.weights.push_back({g, visit, visit});
      ++gathers[g];
    }
  };
  std::map<int, size_t> use_of_group;
  const auto visit_backward = [&](size_t b, bool same_visit) {
    const bool head = is_head(b);
    if (!same_visit) visit_block(b, head || model.blocks[b].backward_reads_weights);
    for (const int g : model.blocks[b].groups) {
      if (frozen(g)) continue;
      const auto [at, inserted] = use_of_group.try_emplace(g, out.gradients.size());
      if (inserted) out.gradients.push_back({g, visit, visit});
      out.gradients[at->second].last_visit = visit;
    }
  };
  for (int m = 0; m < std::min(layout.micro_batches, 2); ++m) {  // the second one follows the first as all others do
    use_of_group.clear();
    for (size_t b = blocks.begin; b < blocks.end; ++b) {
      if (!is_head(b)) visit_block(b, true);
    }
    for (size_t b = blocks.end; b-- > blocks.begin;) {
      if (b < first) continue;
      const bool recomputes = ends_segment(b, blocks);
      for (size_t other = b - (recomputes ? index_in_segment(b) : 0); other < b; ++other)
        visit_block(std::max(other, blocks.begin), true);
      if (recomputes) visit_block(b, true);
      visit_backward(b, recomputes);
    }
    if (m == 0) out.gathers = gathers;
  }
  if (zero >= 3) out.kept_whole = strategies::kept_whole(out.gathers, strategies::groups_kept_whole(run));
  std::erase_if(out.weights, [&](const auto& use) { return out.kept_whole.contains(use.item); });
  std::stable_sort(out.gradients.begin(), out.gradients.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first_visit, a.item) < std::pair(b.first_visit, b.item);
  });
  return out;
}

double PartitionedModel::gathered_bytes(const Visits& uses) const {
  double bytes = 0;
  for (const auto& [g, times] : uses.gathers)
    bytes += static_cast<double>(shard_bytes(g) * shards) * (!uses.kept_whole.contains(g) ? layout.micro_batches * times
                                                             : frozen(g)                  ? 0
                                                                                          : 1);
  return bytes;
}

}  // namespace herd::planner
