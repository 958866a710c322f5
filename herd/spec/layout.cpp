#include "herd/spec/layout.h"

#include <algorithm>
#include <vector>

#include "herd/base/error.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/key_copies.h"

namespace herd::spec {
namespace {

constexpr int64_t kMostProduct = int64_t{1} << 40;

struct AxisSize {
  const char* axis;
  int64_t size;
};

std::string product_text(const std::vector<AxisSize>& axes, int64_t product) {
  std::string text;
  int terms = 0;
  for (const AxisSize& axis : axes) {
    if (axis.size == 1) continue;
    text += (terms++ > 0 ? " * " : "") + std::string(axis.axis) + " " + std::to_string(axis.size);
  }
  if (terms == 0) return std::string(axes.front().axis) + " 1 = 1";
  return text + " = " + std::to_string(product);
}

std::string size_text(const AxisSize& axis, int64_t size) {
  return std::string(axis.axis) + " " + std::to_string(size);
}

// Says whether the model allows so many ranks on an axis.
bool allows(const RunFile& run, std::string_view axis, int64_t size) {
  const auto& model = run.model;
  if (axis == "pp") return size <= (model.kind == "t5" ? 2 : 1) * model.layers + 2;
  const auto divides_heads = [&] {
    const int64_t keys = model.kv_heads;
    return model.heads % size == 0 && (keys == 0 || keys % size == 0 || size % keys == 0);
  };
  RunFile resized = run;
  if (axis == "cp") {
    resized.mesh.cp = size;
    return size <= (model.is_moe() ? 1 : model.context) && exchanges_whole_heads(resized);
  }
  if (axis != "tp") return true;
  if (model.is_moe()) return size == 1;
  resized.mesh.tp = size;
  return model.ffn % size == 0 && divides_heads() && exchanges_whole_heads(resized);
}

// Suggests at most two changes that make the product equal the world, to sizes that the model allows: one of a single
// axis, the last that can do it, and one of dp together with a smaller size of the last other axis.
std::string mesh_fix(const RunFile& run, const std::vector<AxisSize>& axes, int64_t product, int64_t world) {
  std::vector<std::string> fixes;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const int64_t other_axes = product / axis->size;
    if (axis->size > 1 && world % other_axes == 0 && allows(run, axis->axis, world / other_axes)) {
      fixes.push_back(size_text(*axis, world / other_axes));
      break;
    }
  }
  for (auto axis = axes.rbegin(); axis != axes.rend() - 1; ++axis) {
    const int64_t other_axes = product / axis->size / axes.front().size;
    if (axis->size == 1) continue;
    for (int64_t size = axis->size - 1; size >= 1; --size) {
      if (world % (other_axes * size) != 0 || !allows(run, axis->axis, size)) continue;
      const int64_t dp = world / (other_axes * size);
      if (dp != axes.front().size) fixes.push_back(size_text(axes.front(), dp) + " with " + size_text(*axis, size));
      break;  // with dp as it is, the change of one axis above is the same
    }
    break;
  }
  if (fixes.empty()) fixes.push_back("dp " + std::to_string(world) + " and every other axis 1");
  std::string text = fixes[0];
  for (size_t i = 1; i < fixes.size(); ++i) text += ", or " + fixes[i];
  return text;
}

// Cuts the axis of shards into the ranks of one host, which are neighbours, and the hosts. Both are kNoAxis where all
// ranks of the axis are on one host, or each on its own.
void add_hosts(Layout& layout, const RunFile::Mesh& mesh) {
  const int shards = layout.fsdp > 1 ? layout.mesh.find("fsdp") : layout.gradient_axis;
  if (mesh.ranks_per_host == 0 || shards == kNoAxis) return;
  auto& axes = layout.mesh.axes;
  const Axis axis = axes[static_cast<size_t>(shards)];
  const Factor& innermost = axis.factors.back();
  for (size_t i = axis.factors.size() - 1; i-- > 0;) {
    const Factor &outer = axis.factors[i], &inner = axis.factors[i + 1];
    if (outer.stride != inner.stride * inner.size)
      throw Error(Code::kBadConfig, "strategy.secondary_shard keeps neighbouring ranks of " + axis.name +
                                        " together, and other ranks lie between these\n  fix: "
                                        "strategy.secondary_shard = false");
  }
  const int64_t ranks = axis.places(), stride = innermost.stride, in_host = mesh.ranks_per_host / stride;
  if (in_host <= 1 || in_host >= ranks) return;
  if (mesh.ranks_per_host % stride != 0 || ranks % in_host != 0)
    throw Error(Code::kBadConfig, "mesh.ranks_per_host = " + std::to_string(mesh.ranks_per_host) +
                                      " does not cut the " + std::to_string(ranks) + " ranks of " + axis.name +
                                      ", which are " + std::to_string(stride) +
                                      " apart, into equal hosts\n  fix: strategy.secondary_shard = false");
  const int local = static_cast<int>(in_host), hosts = static_cast<int>(ranks / in_host);
  layout.local_axis = static_cast<int>(axes.size());
  axes.push_back({"local", {{static_cast<int>(stride), local}}});
  layout.hosts_axis = static_cast<int>(axes.size());
  axes.push_back({"hosts", {{static_cast<int>(stride) * local, hosts}}});
}

// Fills the mesh and its axes from the sizes of the layout.
void fill_mesh(Layout& layout, const RunFile& run, bool tied, int key_copies) {
  const std::pair<const char*, int> nested[] = {
      {"pp", layout.pp}, {"dp", layout.dp}, {"fsdp", layout.fsdp}, {"cp", layout.cp}, {"tp", layout.tp}};
  layout.mesh.world_size = layout.world_size;
  int stride = layout.world_size;
  for (const auto& [name, size] : nested) {
    stride /= size;
    if (size > 1) layout.mesh.axes.push_back({name, {{stride, size}}});
  }
  auto& axes = layout.mesh.axes;
  const auto add = [&](Axis axis) {
    axes.push_back(std::move(axis));
    return static_cast<int>(axes.size()) - 1;
  };
  const int replicas = layout.mesh.find("dp"), shards = layout.mesh.find("fsdp");
  layout.data_axis = replicas == kNoAxis ? shards : replicas;
  if (replicas != kNoAxis && shards != kNoAxis)
    layout.data_axis = add(product(axes[static_cast<size_t>(replicas)], axes[static_cast<size_t>(shards)]));
  layout.context_axis = layout.mesh.find("cp");
  const auto with_context = [&](int axis) {
    if (axis == kNoAxis || layout.context_axis == kNoAxis) return axis == kNoAxis ? layout.context_axis : axis;
    return add(product(axes[static_cast<size_t>(axis)], axes[static_cast<size_t>(layout.context_axis)]));
  };
  layout.gradient_axis = with_context(layout.data_axis);
  layout.replica_axis = replicas == layout.data_axis ? layout.gradient_axis : with_context(replicas);
  layout.stage_axis = layout.mesh.find("pp");
  layout.tensor_axis = layout.mesh.find("tp");
  if (tied && layout.stage_axis != kNoAxis && !layout.pipeline.folded)
    layout.tied_axis = layout.pp == 2
                           ? layout.stage_axis
                           : add(restricted(axes[static_cast<size_t>(layout.stage_axis)], {0, layout.pp - 1}));
  if (run.strategy.secondary_shard) add_hosts(layout, run.mesh);
  if (key_copies > 1)
    layout.key_copies_axis = key_copies == layout.tp ? layout.tensor_axis : add({"keys", {{1, key_copies}}});
  if (layout.ep > 1) {
    const int inner = layout.tp, all = layout.gradient_ranks();
    layout.expert_axis = add({"ep", {{inner, layout.ep}}});
    if (all > layout.ep) layout.expert_sum_axis = add({"edp", {{inner * layout.ep, all / layout.ep}}});
  }
  layout.sequence_axis = layout.context_axis != kNoAxis ? layout.context_axis : layout.tensor_axis;
  if (layout.context_axis != kNoAxis && layout.tensor_axis != kNoAxis && run.model.routes_whole_sequences())
    layout.sequence_axis =
        add(product(axes[static_cast<size_t>(layout.context_axis)], axes[static_cast<size_t>(layout.tensor_axis)]));
  const std::pair<int, Divided> divisions[] = {{layout.data_axis, Divided::kSamples},
                                               {layout.context_axis, Divided::kTokens},
                                               {layout.tensor_axis, Divided::kLayers},
                                               {layout.stage_axis, Divided::kStages},
                                               {layout.expert_axis, Divided::kExperts}};
  for (const auto& [axis, divides] : divisions) {
    if (axis != kNoAxis) axes[static_cast<size_t>(axis)].divides = divides;
  }
  if (layout.data_axis != kNoAxis && layout.context_axis != kNoAxis)
    axes[static_cast<size_t>(layout.gradient_axis)].divides = Divided::kSamples | Divided::kTokens;
  if (layout.sequence_axis != layout.context_axis && layout.sequence_axis != layout.tensor_axis)
    axes[static_cast<size_t>(layout.sequence_axis)].divides = Divided::kTokens | Divided::kLayers;
}

}  // namespace

Layout resolve_mesh(const RunFile& run, int num_ranks) {
  if (num_ranks < 1) {
    throw Error(Code::kBadConfig,
                "the number of ranks must be >= 1, got " + std::to_string(num_ranks) + "\n  fix: --ranks 2");
  }
  const int64_t servers = run.strategy.dedicated_servers;
  if (servers >= num_ranks) {
    throw Error(Code::kBadConfig, "strategy.dedicated_servers = " + std::to_string(servers) + " of " +
                                      std::to_string(num_ranks) + (num_ranks == 1 ? " rank" : " ranks") +
                                      " leaves none to train\n  fix: --ranks " + std::to_string(servers + 1) +
                                      ", or strategy.dedicated_servers = " + std::to_string(num_ranks - 1));
  }
  const int world_size = num_ranks - static_cast<int>(servers);
  const auto& mesh = run.mesh;
  const std::vector<AxisSize> axes = {
      {"dp", std::max<int64_t>(mesh.dp, 1)}, {"fsdp", mesh.fsdp}, {"tp", mesh.tp}, {"pp", mesh.pp}, {"cp", mesh.cp}};
  int64_t product = 1;
  for (const AxisSize& axis : axes) {
    if (axis.size > world_size) {
      throw Error(Code::kBadConfig,
                  "mesh does not cover the world: " + size_text(axis, axis.size) + " alone is more than world_size = " +
                      std::to_string(world_size) + "\n  fix: " + size_text(axis, 1) +
                      (allows(run, axis.axis, axis.size) ? ", or --ranks " + std::to_string(axis.size) : ""));
    }
    if (product > kMostProduct / axis.size) {
      throw Error(Code::kBadConfig, "mesh does not cover the world: its axes multiply to more than " +
                                        std::to_string(kMostProduct) +
                                        ", but world_size = " + std::to_string(world_size) + "\n  fix: dp " +
                                        std::to_string(world_size) + " and every other axis 1");
    }
    product *= axis.size;
  }
  const bool covers = mesh.dp > 0 ? product == world_size : world_size % product == 0;
  if (!covers) {
    const std::string world = "world_size = " + std::to_string(world_size);
    throw Error(Code::kBadConfig, "mesh does not cover the world: " + product_text(axes, product) +
                                      (mesh.dp > 0 ? ", but " + world : " does not divide " + world) +
                                      "\n  fix: " + mesh_fix(run, axes, product, world_size));
  }
  Layout layout;
  layout.world_size = world_size;
  layout.dedicated_servers = static_cast<int>(servers);
  layout.dp = static_cast<int>(mesh.dp > 0 ? mesh.dp : world_size / product);
  layout.fsdp = static_cast<int>(mesh.fsdp);
  layout.tp = static_cast<int>(mesh.tp);
  layout.pp = static_cast<int>(mesh.pp);
  layout.cp = static_cast<int>(mesh.cp);
  layout.ep = static_cast<int>(mesh.ep);
  if (layout.pp > 1) layout.pipeline = pipeline_form(run);
  const int64_t expert_ranks = int64_t{layout.dp} * layout.fsdp * layout.cp;
  if (expert_ranks % layout.ep != 0) {
    throw Error(Code::kBadConfig, "mesh.ep must divide dp * fsdp * cp: " + std::to_string(expert_ranks) + " % " +
                                      std::to_string(layout.ep) + " = " + std::to_string(expert_ranks % layout.ep) +
                                      "\n  fix: mesh.ep = " + std::to_string(expert_ranks));
  }
  fill_mesh(layout, run, run.model.tie_embeddings, key_copies(run));
  const int64_t n = layout.data_ranks();
  layout.batch = run.train.batch;
  layout.samples_min = layout.batch / n;
  layout.samples_max = (layout.batch + n - 1) / n;
  layout.micro_batch = std::min(run.train.micro_batch, layout.samples_max);
  const int64_t micro_batches = (layout.samples_max + layout.micro_batch - 1) / layout.micro_batch;
  constexpr int64_t kMostMicroBatches = 65536;
  if (micro_batches > kMostMicroBatches) {
    throw Error(Code::kBadConfig, "a step has at most 65536 micro-batches: ceil(" + std::to_string(layout.samples_max) +
                                      " / " + std::to_string(layout.micro_batch) +
                                      ") = " + std::to_string(micro_batches) +
                                      "\n  fix: a larger train.micro_batch or a smaller train.batch");
  }
  layout.micro_batches = static_cast<int>(micro_batches);
  layout.tokens = layout.batch * run.model.context;
  return layout;
}

int stated_zero_stage(const RunFile& run) {
  return run.mesh.fsdp > 1 && run.strategy.zero == 0 ? 3 : static_cast<int>(run.strategy.zero);
}

std::string summary(const Layout& layout) {
  std::string out = std::to_string(layout.world_size) + (layout.world_size == 1 ? " rank = dp " : " ranks = dp ") +
                    std::to_string(layout.dp);
  for (const AxisSize& axis : {AxisSize{"fsdp", layout.fsdp}, AxisSize{"tp", layout.tp}, AxisSize{"pp", layout.pp},
                               AxisSize{"cp", layout.cp}}) {
    if (axis.size > 1) out += " * " + size_text(axis, axis.size);
  }
  if (layout.ep > 1) out += ", ep " + std::to_string(layout.ep);
  if (layout.dedicated_servers > 0)
    out += ", and " + std::to_string(layout.dedicated_servers) + " more that only serve";
  const std::string share = layout.samples_min == layout.samples_max
                                ? std::to_string(layout.samples_max)
                                : std::to_string(layout.samples_min) + " or " + std::to_string(layout.samples_max);
  out += " | " + std::to_string(layout.batch) + " sequences a step = " + share +
         " a rank = " + std::to_string(layout.micro_batches) +
         (layout.micro_batches == 1 ? " micro-batch of " : " micro-batches of ") + std::to_string(layout.micro_batch);
  return out + " | " + std::to_string(layout.tokens) + " tokens a step";
}

}  // namespace herd::spec
