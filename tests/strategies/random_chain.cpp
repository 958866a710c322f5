#include "tests/strategies/random_chain.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <set>

#include "herd/spec/pipeline_form.h"
#include "herd/spec/stage_cut.h"
#include "herd/strategies/gather_codec.h"
#include "herd/strategies/layer_owners.h"
#include "herd/strategies/server_sync.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies::testing {
namespace {

using spec::Pass;
using spec::Turn;

int number(std::mt19937& random, int least, int most) {
  return least + static_cast<int>(random() % static_cast<uint32_t>(most - least + 1));
}

bool chance(std::mt19937& random, double share) { return random() < share * 4294967296.0; }

template <class Item>
Item one_of(std::mt19937& random, const std::vector<Item>& items) {
  return items[random() % items.size()];
}

int64_t size(std::mt19937& random) { return one_of<int64_t>(random, {64, 256, 1000, 4096, 4097}); }

// Parameter servers, and a codec for what is pushed to them.
void draw_servers(std::mt19937& random, int ranks, spec::RunFile& run) {
  run.strategy.sync = one_of<std::string>(random, {"server", "server_async"});
  run.strategy.servers = number(random, 0, ranks);
  if (run.strategy.sync == "server_async") run.strategy.staleness = number(random, -1, 2);
  run.strategy.compression = one_of<std::string>(random, {"none", "bf16", "topk", "int8", "int4"});
  run.optimizer.clip = 0;
  if (!chance(random, 0.3)) return;
  run.strategy.servers = 0;
  run.strategy.dedicated_servers = number(random, 1, 3);
}

}  // namespace

spec::ModelTable random_chain(std::mt19937& random) {
  spec::ModelTable out;
  const int blocks = number(random, 5, 12), batch_tensors = number(random, 1, 3);
  std::vector<spec::TensorId> of_batch, of_blocks;
  for (int t = 0; t < batch_tensors; ++t) {
    out.batch.push_back({.name = "batch" + std::to_string(t), .bytes = size(random), .differentiable = false});
    of_batch.push_back({0, t});
  }
  const auto add_group = [&](spec::BlockShape& block, const std::string& name) {
    block.groups.push_back(static_cast<int>(out.groups.size()));
    out.groups.push_back(
        {.name = name, .parameters = {{.name = name + ".weight", .sizes = {number(random, 1, 9), 7}}}});
    out.groups.back().frozen = chance(random, 0.15);
  };
  for (int b = 0; b < blocks; ++b) {
    const bool is_last = b + 1 == blocks;
    spec::BlockShape block{.name = "block" + std::to_string(b)};
    block.layer = b;
    std::set<spec::TensorId> inputs;
    if (b == 0 || chance(random, 0.3)) inputs.insert(one_of(random, of_batch));
    if (b > 0) {
      for (int reads = number(random, 1, 3); reads > 0; --reads) {
        const bool skips = chance(random, 0.4);
        const auto near = static_cast<size_t>(number(random, 1, std::min<int>(3, static_cast<int>(of_blocks.size()))));
        inputs.insert(skips ? one_of(random, of_blocks) : of_blocks[of_blocks.size() - near]);
      }
    }
    block.inputs.assign(inputs.begin(), inputs.end());
    std::shuffle(block.inputs.begin(), block.inputs.end(), random);
    for (const spec::TensorId input : inputs) block.input_bytes += out.tensor_bytes(input);
    for (int tensor = 0; !is_last && tensor < number(random, 1, 3); ++tensor) {
      block.outputs.push_back(
          {.bytes = size(random), .differentiable = tensor == 0 ? b < 2 || chance(random, 0.9) : chance(random, 0.6)});
      block.output_bytes += block.outputs.back().bytes;
      of_blocks.push_back({b + 1, tensor});
    }
    if (chance(random, 0.75)) add_group(block, block.name);
    if (chance(random, 0.15)) add_group(block, block.name + ".more");
    if (is_last && !out.blocks[0].groups.empty() && chance(random, 0.3))
      block.groups.push_back(out.blocks[0].groups[0]);
    block.graph_bytes = is_last || chance(random, 0.2) ? 0 : block.input_bytes + size(random);
    block.forward = {.matmul_flops = chance(random, 0.2) ? 0.0 : number(random, 1, 1000) * 1e3,
                     .memory_bytes = static_cast<double>(block.input_bytes + block.output_bytes),
                     .scratch_bytes = chance(random, 0.5) ? size(random) : 0};
    if (!is_last) {
      block.backward = block.forward;
      block.backward.matmul_flops *= 2;
    }
    block.backward_reads_weights = chance(random, 0.8);
    block.pending_bytes = chance(random, 0.3) ? size(random) : 0;  // its backward may run in two halves
    out.blocks.push_back(std::move(block));
  }
  if (out.first_trained() == blocks) {
    if (out.groups.empty()) add_group(out.blocks[0], "block0");
    out.groups.back().frozen = false;
  }
  return out;
}

std::vector<std::vector<int>> all_cuts(size_t blocks, int stages) {
  std::vector<std::vector<int>> out;
  for (unsigned borders = 0; borders < 1U << (blocks - 1); ++borders) {
    if (std::popcount(borders) != stages - 1) continue;
    std::vector<int>& cut = out.emplace_back(1, 0);
    for (size_t b = 0; b + 1 < blocks; ++b) cut.push_back(cut.back() + static_cast<int>(borders >> b & 1));
  }
  return out;
}

std::vector<double> weights_of_stages(const spec::ModelTable& chain, const std::vector<int>& cut) {
  std::vector<double> weights(static_cast<size_t>(cut.back()) + 1, 0);
  for (size_t b = 0; b < cut.size(); ++b) {
    const spec::BlockShape& block = chain.blocks[b];
    weights[static_cast<size_t>(cut[b])] +=
        spec::flops_of(block) + spec::kFlopsPerByte * (block.forward.memory_bytes + block.backward.memory_bytes);
  }
  for (const auto& [tensor, readers] : chain.readers()) {
    if (tensor.producer == 0) continue;
    const int first = cut[static_cast<size_t>(tensor.producer) - 1], last = cut[static_cast<size_t>(readers.back())];
    const double bytes =
        static_cast<double>(chain.tensor_bytes(tensor)) * (chain.has_gradient(tensor, chain.first_trained()) ? 2 : 1);
    for (int stage = first; stage < last; ++stage) {
      weights[static_cast<size_t>(stage)] += spec::kFlopsPerBorderByte * bytes;
      weights[static_cast<size_t>(stage) + 1] += spec::kFlopsPerBorderByte * bytes;
    }
  }
  return weights;
}

spec::PipelineOrder random_order(std::mt19937& random, int ranks, int stages_per_rank, int micro_batches, bool folded,
                                 bool splits_backward) {
  spec::PipelineOrder order{ranks, stages_per_rank, micro_batches, folded, {}};
  order.turns.resize(static_cast<size_t>(ranks));
  struct GlobalTurn {
    Pass pass;
    int stage, micro_batch;
    auto operator<=>(const GlobalTurn&) const = default;
  };
  std::set<GlobalTurn> done;
  while (true) {
    std::vector<GlobalTurn> ready;
    for (int stage = 0; stage < order.stages(); ++stage) {
      for (int m = 0; m < micro_batches; ++m) {
        const bool last = stage + 1 == order.stages();
        if (stage == 0 || done.contains({Pass::kForward, stage - 1, m})) ready.push_back({Pass::kForward, stage, m});
        if (done.contains({Pass::kForward, stage, m}) && (last || done.contains({Pass::kBackward, stage + 1, m})))
          ready.push_back({Pass::kBackward, stage, m});
        if (splits_backward && done.contains({Pass::kBackward, stage, m})) ready.push_back({Pass::kWeights, stage, m});
      }
    }
    std::erase_if(ready, [&](const GlobalTurn& turn) { return done.contains(turn); });
    if (ready.empty()) return order;
    const GlobalTurn turn = one_of(random, ready);
    done.insert(turn);
    order.turns[static_cast<size_t>(order.rank_of(turn.stage))].push_back(
        {turn.pass, turn.micro_batch, order.local_stage_of(turn.stage)});
  }
}

std::string ChainRun::text() const {
  const auto& s = run.strategy;
  return std::to_string(ranks) + " ranks, pp " + std::to_string(run.mesh.pp) + " fsdp " +
         std::to_string(run.mesh.fsdp) + " zero " + std::to_string(s.zero) + " shard " + s.shard + " keep_whole " +
         std::to_string(s.keep_whole) + " recompute " + s.recompute + " pipeline " + s.pipeline + " " + s.order +
         " stages_per_rank " + std::to_string(s.stages_per_rank) + " offload " + s.offload + " compression " +
         s.compression + " sync " + s.sync + " " + std::to_string(s.servers) + " or " +
         std::to_string(s.dedicated_servers) + " " + std::to_string(s.staleness) + " gathers " + s.gather_codec +
         " precision " + s.precision + " clip " + std::to_string(run.optimizer.clip) + " batch " +
         std::to_string(run.train.batch);
}

ChainRun random_layout(std::mt19937& random, const spec::ModelTable& chain, const std::string& file) {
  ChainRun out;
  spec::RunFile& run = out.run;
  const int blocks = static_cast<int>(chain.blocks.size());
  const std::string order =
      one_of<std::string>(random, {"gpipe", "1f1b", "interleaved", "zero_bubble_h1", "zero_bubble_v", "file", "file"});
  const bool folded = order == "zero_bubble_v" || (order == "file" && chance(random, 0.4));
  int stages_per_rank = folded ? 2 : 1;
  if (!folded && (order == "interleaved" || order == "file")) stages_per_rank = number(random, 2, 3);
  const int pp = number(random, 1, std::min(4, blocks / stages_per_rank));
  const int dp = number(random, 1, pp > 2 ? 2 : 3), fsdp = chance(random, 0.3) ? 2 : 1;
  const int micro_batches = number(random, 1, 5);
  out.ranks = pp * dp * fsdp;
  run.mesh.pp = pp, run.mesh.fsdp = fsdp;
  run.train.micro_batch = 1;
  run.train.batch = dp * fsdp * micro_batches - (dp * fsdp > 1 ? number(random, 0, 1) : 0);
  run.strategy.zero = number(random, 0, 3);
  run.strategy.keep_whole = run.strategy.zero == 3 ? number(random, 0, 2) : 0;
  run.strategy.bucket = one_of<int64_t>(random, {1, 300, 1 << 20});
  run.strategy.recompute = one_of<std::string>(random, {"none", "full", "sqrt", "every:2", "every:3"});
  run.strategy.precision = one_of<std::string>(random, {"fp32", "bf16", "fp16"});
  run.strategy.offload = one_of<std::string>(random, {"none", "none", "none", "window", "states", "nvme"});
  const bool updates_on_host_alone = run.strategy.offload == "states" || run.strategy.offload == "nvme";
  const bool has_one_value = run.strategy.zero == 3 || (run.strategy.zero == 0 && fsdp == 1);
  if (run.strategy.offload == "window" && has_one_value && chance(random, 0.5))
    run.strategy.file_layers = number(random, 0, blocks);
  run.strategy.delayed_update = updates_on_host_alone && run.strategy.precision != "fp16" && chance(random, 0.5);
  if (run.strategy.recompute != "none")
    run.strategy.offload_activations = one_of<std::string>(random, {"none", "host", "nvme"});
  run.strategy.compression = run.strategy.precision == "fp32" && fsdp == 1 && chance(random, 0.2) ? "bf16" : "none";
  if (run.strategy.zero > 1 && chance(random, 0.3)) run.strategy.compression = chance(random, 0.5) ? "int8" : "int4";
  if (run.strategy.compression == "bf16") run.strategy.zero = std::min<int64_t>(run.strategy.zero, 1);
  if (run.strategy.zero == 3 && chance(random, 0.4) && run.strategy.offload != "window")
    run.strategy.gather_codec = "int8";
  run.optimizer.clip = chance(random, 0.7) ? 1 : 0;
  if (pp == 1 && order != "1f1b" && order != "file") run.strategy.order = "layer_major";
  const bool cuts = run.strategy.zero > 0 || fsdp > 1;
  const bool moves_plain_numbers =
      run.strategy.offload == "none" && run.strategy.compression == "none" && run.strategy.gather_codec == "none";
  if (cuts && moves_plain_numbers && chance(random, 0.4)) run.strategy.shard = "layers";
  std::mt19937 apart = random;  // what is drawn of it changes nothing that is drawn later
  const bool pushes = pp == 1 && dp > 1 && !cuts && run.strategy.precision == "fp32" && run.strategy.offload == "none";
  if (pushes && chance(apart, 0.5)) draw_servers(apart, dp, run);
  const bool writes_once = run.strategy.order == "layer_major" || (pp == 1 && micro_batches == 1);
  const bool is_own = dp * fsdp == 1 || spec::stated_zero_stage(run) >= 2;
  if (run.strategy.offload == "nvme" && !run.strategy.delayed_update && writes_once && is_own && chance(apart, 0.7))
    run.strategy.offload = "nvme_gradients";
  const bool has_shards = dp * fsdp == 1 || spec::stated_zero_stage(run) == 3;
  if (run.strategy.offload == "window" && writes_once && has_shards && chance(apart, 0.7))
    run.strategy.offload = "nvme_all", run.strategy.file_layers = spec::kAuto;
  out.ranks += static_cast<int>(run.strategy.dedicated_servers);
  if (pp == 1) return out;
  if (order != "file") {
    run.strategy.pipeline = order;
    if (order == "interleaved") run.strategy.stages_per_rank = stages_per_rank;
    return out;
  }
  run.strategy.pipeline = "file:" + file;
  std::ofstream(file) << to_text(random_order(random, pp, stages_per_rank, micro_batches, folded, chance(random, 0.5)));
  return out;
}

program::Expectation expectation_of(const ChainRun& run, const spec::ModelTable& chain) {
  const spec::Layout layout = trainable_layout(run.run, run.ranks);
  program::Expectation expected = strategies::expectation_of(chain, layout);
  expected.micro_batches = layout.micro_batches;
  expected.proof.staged = layout.pp > 1;
  expected.proof.shard_axis = shard_axis(run.run, layout);
  if (has_owners(run.run, layout))
    expected.proof.owners = balanced_owners(chain, stages_of(chain, layout.pp, layout.pipeline),
                                            layout.mesh.size(expected.proof.shard_axis));
  expected.proof.weight_codec = weight_codec(run.run, layout);
  expected.proof.losses_kept = zero_stage(run.run, layout) < 2;
  expected.proof.update_delay = run.run.strategy.delayed_update ? 1 : 0;
  if (uses_servers(run.run, layout)) {
    expected.proof.clipped = false;
    expected.proof.shard_axis = layout.data_axis;
    expected.proof.num_servers = layout.dedicated_servers > 0 ? 0 : num_servers(run.run, layout);
    expected.proof.dedicated_servers = layout.dedicated_servers;
    expected.proof.staleness = staleness(run.run, layout);
  }
  expected.proof.hops = {.between = layout.hosts_axis, .within = layout.local_axis};
  return expected;
}

}  // namespace herd::strategies::testing
