// Memory, time and traffic of a step in closed form, over the same layer table that Programs are built from.
//   standing    weights, gradients, states: psi bytes each, cut over N = fsdp (or dp) ranks by the ZeRO stage
//   pools       whole weights and gradients of the blocks at work, where they are cut
//   activations what blocks keep for each micro-batch in flight, and the most that the backward pass adds to it
//   step        (m forward and backward passes of the slowest stage) / (1 - bubble) + communication that nothing hides
//               + update
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "herd/base/error.h"
#include "herd/planner/prediction.h"
#include "herd/program/pool.h"
#include "herd/spec/model_states.h"
#include "herd/spec/pipeline.h"
#include "herd/strategies/recompute.h"
#include "herd/strategies/table.h"
#include "herd/strategies/zero3.h"

namespace herd::planner {
namespace {

using program::OpKind;

struct Interval {
  size_t begin = 0, end = 0;
};

class Equations {
 public:
  Equations(const spec::RunFile& run, const spec::Layout& layout, const Cluster& cluster, ChosenCost cost)
      : run_(run),
        layout_(layout),
        cluster_(cluster),
        machine_(calibration_of(cluster, run, layout)),
        model_(spec::model_table(run, layout.micro_batch, cluster.device.kernels())),
        first_(static_cast<size_t>(model_.first_trained())),
        cost_(std::move(cost)),
        shards_(layout.fsdp > 1 ? layout.fsdp : layout.dp),
        axis_(layout.fsdp > 1 ? "fsdp" : "dp") {
    refuse_unknown();
    zero_ = strategies::zero_stage(run, layout);
    const int transformer_blocks = static_cast<int>(model_.blocks.size()) - 2;
    segment_ = static_cast<size_t>(strategies::recompute_interval(run.strategy.recompute, transformer_blocks));
    const auto& host = cluster.topology.hosts[0];
    const double wanted = static_cast<double>(host.ranks) * machine_.threads;
    crowding_ = std::max(1.0, wanted / machine_.cores);
    ranks_of_host_ = host.ranks;
  }

  // Only what memory holds, or times and traffic too, which ask for prices.
  enum class Parts : uint8_t { kMemory, kAll };
  Prediction run(Parts parts) {
    Prediction out;
    out.layout = layout_;
    out.parameters = model_.parameters();
    out.frozen = model_.frozen_parameters();
    for (int stage = 0; stage < layout_.pp; ++stage) {
      const Prediction one = of_stage(stage, parts);
      if (one.device.total() > out.device.total()) {
        out.device = one.device;
        out.host = one.host;
        out.nvme = one.nvme;
      }
      if (one.step_us > out.step_us) {
        out.step_us = one.step_us;
        out.flops = one.flops;
        out.compute_us = one.compute_us;
        out.sent = one.sent;
      }
    }
    out.device_bound = out.device.total();
    out.idle_share = bubble();
    return out;
  }

 private:
  void refuse_unknown() const {
    const auto& strategy = run_.strategy;
    if (strategy.offload == "window") {
      throw Error(Code::kBadConfig,
                  "no equation here covers strategy.offload = \"window\"\n  fix: strategy.offload = \"states\"");
    }
    if (strategy.compression != "none") {
      throw Error(Code::kBadConfig, "no equation here covers strategy.compression = \"" + strategy.compression +
                                        "\"\n  fix: strategy.compression = \"none\"");
    }
    if (layout_.ep > 1) {
      throw Error(Code::kBadConfig, "no equation here covers mesh.ep = " + std::to_string(layout_.ep) +
                                        ": no model here has experts\n  fix: mesh.ep = 1");
    }
    if (layout_.pp > 1 && strategy.pipeline == "interleaved") {
      throw Error(Code::kBadConfig,
                  "no equation here covers strategy.pipeline = \"interleaved\": the run file does not say how many "
                  "chunks a stage has\n  fix: strategy.pipeline = \"1f1b\"");
    }
    const int64_t blocks = static_cast<int64_t>(model_.blocks.size());
    if (layout_.pp > blocks) {
      throw Error(Code::kBadConfig, "mesh.pp must not exceed the blocks of the model: " + std::to_string(layout_.pp) +
                                        " > " + std::to_string(blocks) +
                                        "\n  fix: mesh.pp = " + std::to_string(blocks));
    }
  }

  double bubble() const {
    return spec::bubble_fraction(spec::parse_pipeline(run_.strategy.pipeline), layout_.pp, layout_.micro_batches);
  }

  // Equal numbers of transformer blocks; the embedding is with the first, the head with the last.
  Interval blocks_of(int stage) const {
    const size_t layers = model_.blocks.size() - 2, p = static_cast<size_t>(layout_.pp), s = static_cast<size_t>(stage);
    Interval out{1 + layers * s / p, 1 + layers * (s + 1) / p};
    if (s == 0) out.begin = 0;
    if (s + 1 == p) out.end = model_.blocks.size();
    return out;
  }

  bool is_head(size_t b) const { return b + 1 == model_.blocks.size(); }
  bool recomputed(size_t b) const { return segment_ > 0 && b > 0 && b >= first_ && !is_head(b); }
  size_t in_segment(size_t b) const { return (b - std::max<size_t>(first_, 1)) % segment_; }

  bool ends_segment(size_t b, const Interval& blocks) const {
    return recomputed(b) && (in_segment(b) + 1 == segment_ || is_head(b + 1) || b + 1 == blocks.end);
  }

  double kept(size_t b) const {  // of one micro-batch, from forward to backward
    const auto& block = model_.blocks[b];
    if (recomputed(b)) return in_segment(b) == 0 ? static_cast<double>(block.input_bytes) : 0;
    return static_cast<double>(block.graph_bytes);
  }

  // The most that is held of the micro-batch whose turn it is, and scratch of the op in question apart.
  double walk(const Interval& blocks, double& scratch) const {
    double before = 0, best = 0;
    const auto offer = [&](double held, int64_t more) {
      if (held + static_cast<double>(more) <= best + scratch) return;
      best = held;
      scratch = static_cast<double>(more);
    };
    const double targets = blocks.end == model_.blocks.size() ? static_cast<double>(model_.target_bytes) : 0;
    for (size_t b = blocks.begin; b < blocks.end; ++b) {  // forward, in case a small model peaks there
      const auto& block = model_.blocks[b];
      const double in = static_cast<double>(block.input_bytes);
      if (is_head(b)) {
        offer(before + targets + (b > first_ ? 2 : 1) * in, block.forward.scratch_bytes);
        break;
      }
      const double graph = recomputed(b) ? in : kept(b) + in;
      offer(before + targets + graph + static_cast<double>(block.output_bytes), block.forward.scratch_bytes);
      before += kept(b);
    }
    for (size_t b = blocks.end; b-- > blocks.begin;) {  // backward
      const auto& block = model_.blocks[b];
      if (is_head(b) || b < first_) continue;
      before -= kept(b);
      double own = static_cast<double>(block.graph_bytes);
      if (recomputed(b)) {  // its segment is whole again, up to this block
        const size_t first = b - in_segment(b);
        for (size_t other = std::max(first, blocks.begin); other < b; ++other)
          own += static_cast<double>(model_.blocks[other].graph_bytes) - kept(other);
      }
      const double arriving = static_cast<double>(block.output_bytes);
      if (ends_segment(b, blocks))
        offer(before + own + arriving + static_cast<double>(block.input_bytes), block.forward.scratch_bytes);
      const double leaving = b > first_ ? static_cast<double>(block.input_bytes) : 0;
      offer(before + own + arriving + leaving, block.backward.scratch_bytes);
    }
    return best;
  }

  std::set<int> groups_of(const Interval& blocks) const {
    std::set<int> groups;
    for (size_t b = blocks.begin; b < blocks.end; ++b)
      groups.insert(model_.blocks[b].groups.begin(), model_.blocks[b].groups.end());
    return groups;
  }
  bool frozen(int group) const { return model_.groups[static_cast<size_t>(group)].frozen; }
  double elements_of(const Interval& blocks) const {  // that are trained
    double sum = 0;
    for (const int g : groups_of(blocks)) sum += frozen(g) ? 0 : static_cast<double>(model_.group_elements(g));
    return sum;
  }
  int64_t weight_bytes(int group) const { return model_.group_elements(group) * size_of(model_.compute); }
  // Gradients are cut as weights are, so whatever the weights of a part take, its gradient takes so many times that.
  double gradient_ratio() const {
    return static_cast<double>(size_of(model_.gradient)) / static_cast<double>(size_of(model_.compute));
  }

  // Passes over blocks that hold whole weights or gradients of groups, in the order of a step.
  struct Visits {
    std::vector<program::PoolUse> weights, gradients;
    std::map<int, int> gathers = {};  // by group, in one micro-batch where it is not kept whole
    std::set<int> kept = {};          // groups that ZeRO-3 keeps whole
  };
  Visits visits(const Interval& blocks) const {
    Visits out;
    std::map<int, int> gathers;
    int visit = 0;
    const auto pass = [&](size_t b, bool weights) {
      ++visit;
      for (const int g : model_.blocks[b].groups) {
        if (!weights) continue;
        out.weights.push_back({g, visit, visit});
        ++gathers[g];
      }
    };
    std::map<int, size_t> begun;
    const auto differentiate = [&](size_t b, bool same_visit) {
      const bool head = is_head(b);
      if (!same_visit) pass(b, head || model_.blocks[b].backward_reads_weights);
      for (const int g : model_.blocks[b].groups) {
        if (frozen(g)) continue;
        const auto [at, fresh] = begun.try_emplace(g, out.gradients.size());
        if (fresh) out.gradients.push_back({g, visit, visit});
        out.gradients[at->second].last_visit = visit;
      }
    };
    for (int m = 0; m < std::min(layout_.micro_batches, 2); ++m) {  // the second one follows the first as all others do
      begun.clear();
      for (size_t b = blocks.begin; b < blocks.end; ++b) {
        if (!is_head(b)) pass(b, true);
      }
      for (size_t b = blocks.end; b-- > blocks.begin;) {
        if (b < first_) continue;
        const bool again = ends_segment(b, blocks);
        for (size_t other = b - (again ? in_segment(b) : 0); other < b; ++other)
          pass(std::max(other, blocks.begin), true);
        if (again) pass(b, true);
        differentiate(b, again);
      }
      if (m == 0) out.gathers = gathers;
    }
    if (zero_ >= 3) out.kept = strategies::kept_whole(out.gathers, strategies::groups_kept_whole(run_));
    std::erase_if(out.weights, [&](const auto& use) { return out.kept.contains(use.item); });
    std::stable_sort(out.gradients.begin(), out.gradients.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first_visit, a.item) < std::pair(b.first_visit, b.item);
    });
    return out;
  }
  double gathered_bytes(const Visits& uses) const {  // of weights, in a step
    double bytes = 0;
    for (const auto& [g, times] : uses.gathers)
      bytes += static_cast<double>(shard_of(g) * shards_) * (!uses.kept.contains(g) ? layout_.micro_batches * times
                                                             : frozen(g)            ? 0
                                                                                    : 1);
    return bytes;
  }
  int64_t shard_of(int group) const { return spec::shard_bytes(weight_bytes(group), shards_); }
  double pool_bytes(const std::vector<program::PoolUse>& uses, int depth) const {
    std::vector<int64_t> bytes;
    for (int g = 0; g < static_cast<int>(model_.groups.size()); ++g) bytes.push_back(shard_of(g) * shards_);
    return static_cast<double>(program::assign_pool(bytes, uses, depth).bytes());
  }

  void remember(const Interval& blocks, int stage, Prediction& out) const {
    const spec::StateBytes bytes = spec::state_bytes(run_);
    const Visits uses = zero_ >= 2 ? visits(blocks) : Visits{};
    double states = 0;
    for (const int g : groups_of(blocks)) {
      const double whole = static_cast<double>(zero_ > 0 ? shard_of(g) * shards_ : weight_bytes(g));
      const double part = static_cast<double>(zero_ > 0 ? shard_of(g) : weight_bytes(g));
      if (frozen(g)) {
        out.device.weights += zero_ >= 3 && !uses.kept.contains(g) ? part : static_cast<double>(weight_bytes(g));
        continue;
      }
      out.device.weights += zero_ >= 3 && !uses.kept.contains(g) ? part : whole;
      out.device.gradients += gradient_ratio() * (zero_ >= 2 ? part : whole);
      states += part / bytes.weight * bytes.states;
    }
    const std::string& offload = run_.strategy.offload;
    (offload == "states" ? out.host.states : offload == "nvme" ? out.nvme.states : out.device.states) = states;
    double scratch = 0, all = 0;
    const double now = walk(blocks, scratch);
    for (size_t b = blocks.begin; b < blocks.end; ++b) all += is_head(b) ? 0 : kept(b);
    const double in_flight = spec::micro_batches_in_flight(spec::parse_pipeline(run_.strategy.pipeline), layout_.pp,
                                                           layout_.micro_batches, stage);
    out.device.activations = now + (layout_.pp > 1 ? (in_flight - 1) * all : 0);
    out.device.buffers = scratch;
    if (zero_ < 2) return;
    const program::SlotRules rules = strategies::slot_rules(run_);
    out.device.buffers += gradient_ratio() * pool_bytes(uses.gradients, rules.gradient_buffers);
    if (zero_ >= 3) out.device.buffers += pool_bytes(uses.weights, rules.gather_buffers);
  }

  double inner_us(const spec::BlockShape& block, int spec::InnerCollective::*times) const {
    double us = 0;
    for (const auto& one : block.inner) {
      const int n = one.axis == "tp" ? layout_.tp : layout_.cp;
      const auto price = cost_.price(one.reduces ? OpKind::kReduce : OpKind::kGather, one.bytes, one.axis, n);
      us += one.*times * (price.latency_us + price.work_us * crowding_);
    }
    return us;
  }
  double pass_us(const spec::Cost& cost, double more_bytes) const {
    const auto [work_us, bytes] = program::pass_work(cost, more_bytes, machine_);
    return std::max(work_us * crowding_, bytes * ranks_of_host_ / machine_.host_bytes_per_us);
  }
  double gradient_bytes(size_t b) const {
    double elements = 0;
    for (const int g : model_.blocks[b].groups)
      elements += frozen(g) ? 0 : static_cast<double>(model_.group_elements(g));
    return elements * static_cast<double>(size_of(model_.gradient));
  }

  struct Passes {
    double forward = 0, backward = 0, arithmetic = 0, flops = 0;
  };
  Passes passes(const Interval& blocks) const {  // of one micro-batch
    Passes out;
    const double adds = layout_.micro_batches > 1 ? 2 : 1;  // later micro-batches read the gradient too
    const auto count = [&](const spec::Cost& cost) {
      out.flops += cost.matmul_flops + cost.attention_flops;
      out.arithmetic +=
          (cost.matmul_flops / machine_.matmul_flops_per_us + cost.attention_flops / machine_.attention_flops_per_us) /
          machine_.threads;
    };
    for (size_t b = blocks.begin; b < blocks.end; ++b) {
      const auto& block = model_.blocks[b];
      const double forward = pass_us(block.forward, is_head(b) ? adds * gradient_bytes(b) : 0) +
                             inner_us(block, &spec::InnerCollective::forward);
      count(block.forward);
      (is_head(b) ? out.backward : out.forward) += forward;
      if (is_head(b) || b < first_) continue;
      out.backward +=
          pass_us(block.backward, adds * gradient_bytes(b)) + inner_us(block, &spec::InnerCollective::backward);
      count(block.backward);
      if (recomputed(b)) {
        out.backward += forward;
        count(block.forward);
      }
    }
    return out;
  }

  double price_us(OpKind kind, double bytes, const std::string& axis, int ranks, double& on_cores) const {
    const auto price = cost_.price(kind, std::llround(bytes), axis, ranks);
    on_cores += price.work_us;
    return price.latency_us + price.work_us;
  }

  // Gradients meet, and with them weights where they are shards. Returns time, and how much of it is on cores.
  double data_parallel_us(const Interval& blocks, double psi, double& on_cores,
                          std::map<std::string, double>& sent) const {
    const double bytes = psi * static_cast<double>(size_of(model_.gradient));
    const double m = layout_.micro_batches;
    double us = 0;
    if (shards_ > 1) {
      const double n = shards_, reduces = zero_ >= 2 ? m : 1;  // what is cut can't wait for the last micro-batch
      double whole = 0;
      int trained = 0;
      for (const int g : groups_of(blocks)) {
        if (frozen(g)) continue;
        ++trained;
        whole += static_cast<double>(zero_ > 0 ? shard_of(g) * shards_ : weight_bytes(g));
      }
      const double gathered = zero_ == 3 ? gathered_bytes(visits(blocks)) : zero_ > 0 ? whole : 0;
      const double reduced = whole * gradient_ratio();
      const double halves = zero_ == 0 ? 2 * reduced : reduces * reduced + gathered;  // of all-reduces
      sent[axis_] += halves * (n - 1) / n;
      us += price_us(OpKind::kReduce, reduced, axis_, shards_, on_cores) * halves / (2 * reduced);
      on_cores *= halves / (2 * reduced);
      if (zero_ > 0) sent[axis_] += 2 * 8 * static_cast<double>(trained) * (n - 1) / n;  // norms
    }
    if (layout_.cp > 1) {
      sent["cp"] += 2 * bytes * (layout_.cp - 1) / layout_.cp;
      us += price_us(OpKind::kReduce, bytes, "cp", layout_.cp, on_cores);
    }
    if (layout_.fsdp > 1 && layout_.dp > 1) {
      double part = 0;
      for (const int g : groups_of(blocks)) part += frozen(g) ? 0 : gradient_ratio() * static_cast<double>(shard_of(g));
      sent["dp"] += 2 * part * (layout_.dp - 1) / layout_.dp;
      us += price_us(OpKind::kReduce, part, "dp", layout_.dp, on_cores);
    }
    return us;
  }

  Prediction of_stage(int stage, Parts parts) const {
    Prediction out;
    const Interval blocks = blocks_of(stage);
    remember(blocks, stage, out);
    if (parts == Parts::kMemory) return out;
    const Passes one = passes(blocks);
    const double m = layout_.micro_batches, psi = elements_of(blocks);
    out.flops = m * one.flops;
    out.compute_us = m * one.arithmetic;
    double on_cores = 0;
    const double talk = data_parallel_us(blocks, psi, on_cores, out.sent);
    const double backward = (zero_ >= 2 ? m : 1) * one.backward + (zero_ >= 3 ? m * one.forward : 0);
    // A device sends while it computes; cores that all compute have to do both.
    const double first_bucket = psi > 0
                                    ? talk * std::min(1.0, static_cast<double>(run_.strategy.bucket) /
                                                               (psi * static_cast<double>(size_of(model_.gradient))))
                                    : 0;
    const bool spare = machine_.cores > ranks_of_host_ * machine_.threads;
    const double hidden = spare ? talk : talk - on_cores;
    const double shown = talk - hidden + std::max(first_bucket * (spare ? 1 : 0), hidden - backward);
    out.step_us = m * (one.forward + one.backward) / (1 - bubble()) + std::max(0.0, shown) + update_us(psi);
    const double rd = static_cast<double>(model_.blocks[1].output_bytes);
    if (layout_.pp > 1) out.sent["pp"] += m * rd * (stage > 0 && stage + 1 < layout_.pp ? 2 : 1);
    for (size_t b = blocks.begin; b < blocks.end; ++b) {
      for (const auto& inner : model_.blocks[b].inner) {
        const double n = inner.axis == "tp" ? layout_.tp : layout_.cp;
        const double times = inner.forward * (recomputed(b) ? 2 : 1) + inner.backward;
        out.sent[inner.axis] += m * times * (inner.reduces ? 2 : 1) * static_cast<double>(inner.bytes) * (n - 1) / n;
      }
    }
    return out;
  }

  // Reads gradient, weight and states, writes weight and states; the norm reads the gradient once more. States that are
  // elsewhere are updated there, as fast as their tier gives and takes them; gradients go there, weights come back.
  double update_us(double psi) const {
    const spec::StateBytes bytes = spec::state_bytes(run_);
    const double own = zero_ >= 1 ? psi / shards_ : psi;
    const double here = pass_us({}, own * 2 * (bytes.gradient + bytes.weight));
    const std::string& offload = run_.strategy.offload;
    if (offload == "none" || (offload == "states" && !cluster_.device.own))
      return pass_us({}, own * 2 * (bytes.gradient + bytes.weight + bytes.states));
    const double rate = offload == "nvme" ? cluster_.device.nvme_bytes_per_us : cluster_.device.host_link_bytes_per_us;
    return here + own * 2 * bytes.states / rate +
           own * (bytes.gradient + bytes.weight) / cluster_.device.host_link_bytes_per_us;
  }

  const spec::RunFile& run_;
  const spec::Layout& layout_;
  const Cluster& cluster_;
  program::Calibration machine_;
  spec::ModelTable model_;
  const size_t first_;  // block that anything is trained in: those before it are not differentiated
  ChosenCost cost_;
  int shards_;
  std::string axis_;
  int zero_ = 0;
  size_t segment_ = 0;  // transformer blocks that are computed again together; 0 = none are
  double crowding_ = 1, ranks_of_host_ = 1;
};

Prediction by_equations(const spec::RunFile& run, int ranks, const Cluster& cluster, ChosenCost::Memory& memory,
                        Equations::Parts parts) {
  const spec::Layout layout = spec::resolve_mesh(run, ranks);
  const Cluster used = with_ranks(cluster, ranks);
  const DType compute = run.strategy.precision == "fp32" ? DType::kF32 : DType::kBF16;
  ChosenCost cost(used.topology, layout, compute, ChosenCost::Sizes::kLine);
  cost.remember_in(memory);
  return Equations(run, layout, used, std::move(cost)).run(parts);
}

}  // namespace

Prediction predict_by_equations(const spec::RunFile& run, int ranks, const Cluster& cluster,
                                ChosenCost::Memory& memory) {
  return by_equations(run, ranks, cluster, memory, Equations::Parts::kAll);
}

Prediction memory_by_equations(const spec::RunFile& run, int ranks, const Cluster& cluster) {
  ChosenCost::Memory memory;
  return by_equations(run, ranks, cluster, memory, Equations::Parts::kMemory);
}

}  // namespace herd::planner
