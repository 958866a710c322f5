#include <algorithm>
#include <cmath>
#include <utility>

#include "herd/planner/equations_internal.h"
#include "herd/spec/model_states.h"
#include "herd/spec/pipeline.h"

namespace herd::planner {
namespace {

using program::OpKind;

class StageTime {
 public:
  StageTime(const PartitionedModel& cut, const Cluster& cluster, const CollectiveCostModel& cost)
      : cut_(cut), cluster_(cluster), machine_(calibration_of(cluster, cut.run, cut.layout)), cost_(cost) {
    const auto& host = cluster.topology.hosts[0];
    ranks_of_host_ = host.ranks;
    oversubscription_ = std::max(1.0, ranks_of_host_ * machine_.threads / machine_.cores);
  }

  void add_to(int stage, Prediction& out) const {
    const BlockInterval blocks = cut_.blocks_of(stage);
    const Passes one = passes(blocks);
    const double m = cut_.layout.micro_batches, psi = cut_.trained_elements(blocks);
    out.flops = m * one.flops;
    out.compute_us = m * one.arithmetic;
    double on_cores = 0;
    const double talk = data_parallel_us(blocks, psi, on_cores, out.sent) + tied_us(stage, on_cores, out.sent);
    const double backward = (cut_.zero >= 2 ? m : 1) * one.backward + (cut_.zero >= 3 ? m * one.forward : 0);
    // A device sends while it computes; cores that all compute have to do both.
    const double first_bucket =
        psi > 0 ? talk * std::min(1.0, static_cast<double>(cut_.run.strategy.bucket) /
                                           (psi * static_cast<double>(size_of(cut_.model.gradient_dtype))))
                : 0;
    const bool spare = machine_.cores > ranks_of_host_ * machine_.threads;
    const double hidden = spare ? talk : talk - on_cores;
    const double shown = talk - hidden + std::max(first_bucket * (spare ? 1 : 0), hidden - backward);
    out.step_us = m * (one.forward + one.backward) / (1 - idle_share(cut_)) + std::max(0.0, shown) + update_us(psi);
    const double rd = static_cast<double>(cut_.model.blocks[1].output_bytes);
    if (cut_.layout.pp > 1) out.sent["pp"] += m * rd * (stage > 0 && stage + 1 < cut_.layout.pp ? 2 : 1);
    for (size_t b = blocks.begin; b < blocks.end; ++b) {
      for (const auto& inner : cut_.model.blocks[b].inner) {
        const double n = inner.axis == "tp" ? cut_.layout.tp : cut_.layout.cp;
        double times = inner.times_forward + (b >= cut_.first ? inner.times_backward : 0);
        if (cut_.recomputed(b)) times += inner.*again(b, blocks);
        out.sent[inner.axis] +=
            m * times * (inner.is_all_reduce ? 2 : 1) * static_cast<double>(inner.bytes) * (n - 1) / n;
      }
    }
  }

 private:
  // The last block of a segment runs again for its graph alone, those before it for their outputs, too.
  int spec::InnerCollective::*again(size_t b, const BlockInterval& blocks) const {
    return cut_.ends_segment(b, blocks) ? &spec::InnerCollective::times_recompute
                                        : &spec::InnerCollective::times_forward;
  }

  double inner_us(const spec::BlockShape& block, int spec::InnerCollective::*times) const {
    double us = 0;
    for (const auto& one : block.inner) {
      const auto price = cost_.price(one.is_all_reduce ? OpKind::kAllReduce : OpKind::kAllGather, one.bytes,
                                     cut_.layout.mesh, cut_.layout.mesh.find(one.axis));
      us += one.*times * (price.latency_us + price.work_us * oversubscription_);
    }
    return us;
  }
  double pass_us(const spec::PassCost& cost, double more_bytes, int parts = 1) const {
    const auto [work_us, bytes] = program::pass_work(cost, more_bytes, machine_);
    const double all_us = work_us + (parts - 1) * machine_.op_overhead_us;
    return std::max(all_us * oversubscription_, bytes * ranks_of_host_ / machine_.host_bytes_per_us);
  }
  double gradient_bytes(size_t b) const {
    double elements = 0;
    for (const int g : cut_.model.blocks[b].groups)
      elements += cut_.frozen(g) ? 0 : static_cast<double>(cut_.model.group_elements(g));
    return elements * static_cast<double>(size_of(cut_.model.gradient_dtype));
  }

  struct Passes {
    double forward = 0, backward = 0, arithmetic = 0, flops = 0;
  };
  Passes passes(const BlockInterval& blocks) const {  // one micro-batch
    Passes out;
    const double adds = cut_.layout.micro_batches > 1 ? 2 : 1;  // later micro-batches read the gradient too
    const auto count = [&](const spec::PassCost& cost) {
      out.flops += cost.matmul_flops + cost.attention_flops;
      out.arithmetic +=
          (cost.matmul_flops / machine_.matmul_flops_per_us + cost.attention_flops / machine_.attention_flops_per_us) /
          machine_.threads;
    };
    for (size_t b = blocks.begin; b < blocks.end; ++b) {
      const auto& block = cut_.model.blocks[b];
      const double forward =
          pass_us(block.forward, cut_.is_head(b) ? adds * gradient_bytes(b) : 0, block.num_program_blocks);
      (cut_.is_head(b) ? out.backward : out.forward) +=
          forward + inner_us(block, &spec::InnerCollective::times_forward);
      count(block.forward);
      if (b < cut_.first) continue;
      out.backward += inner_us(block, &spec::InnerCollective::times_backward);
      if (cut_.is_head(b)) continue;
      out.backward += pass_us(block.backward, adds * gradient_bytes(b), block.num_program_blocks);
      count(block.backward);
      if (cut_.recomputed(b)) {
        out.backward += forward + inner_us(block, again(b, blocks));
        count(block.forward);
      }
    }
    return out;
  }

  double price_us(OpKind kind, double bytes, const std::string& axis, double& on_cores) const {
    const auto price = cost_.price(kind, std::llround(bytes), cut_.layout.mesh, cut_.layout.mesh.find(axis));
    on_cores += price.work_us;
    return price.latency_us + price.work_us;
  }

  // Prices the collectives of gradients, and of weights where they are shards. Returns their time, and its part on
  // cores.
  double data_parallel_us(const BlockInterval& blocks, double psi, double& on_cores,
                          std::map<std::string, double>& sent) const {
    const double bytes = psi * static_cast<double>(size_of(cut_.model.gradient_dtype));
    const double m = cut_.layout.micro_batches;
    double us = 0;
    if (cut_.shards > 1) {
      const double n = cut_.shards,
                   reduces = cut_.zero >= 2 ? m : 1;  // what is cut can't wait for the last micro-batch
      double whole = 0;
      int trained = 0;
      for (const int g : cut_.groups_of(blocks)) {
        if (cut_.frozen(g)) continue;
        ++trained;
        whole += static_cast<double>(cut_.zero > 0 ? cut_.shard_bytes(g) * cut_.shards : cut_.weight_bytes(g));
      }
      const double gathered = cut_.zero == 3 ? cut_.gathered_bytes(cut_.visits(blocks)) : cut_.zero > 0 ? whole : 0;
      const double reduced = whole * cut_.gradient_ratio();
      // These are the bytes of reduce-scatters and all-gathers, each half of an all-reduce.
      const double halves = cut_.zero == 0 ? 2 * reduced : reduces * reduced + gathered;
      sent[cut_.axis] += halves * (n - 1) / n;
      us += price_us(OpKind::kAllReduce, reduced, cut_.axis, on_cores) * halves / (2 * reduced);
      on_cores *= halves / (2 * reduced);
      if (cut_.zero > 0) sent[cut_.axis] += 2 * 8 * static_cast<double>(trained) * (n - 1) / n;  // norms
    }
    if (cut_.layout.cp > 1) {
      sent["cp"] += 2 * bytes * (cut_.layout.cp - 1) / cut_.layout.cp;
      us += price_us(OpKind::kAllReduce, bytes, "cp", on_cores);
    }
    // Ranks that share rows each have the gradients of their own rows for weights that are whole. What ZeRO cuts is
    // summed among them as shards.
    if (cut_.layout.tp > 1 && cut_.run.strategy.sequence_parallel) {
      const double part = cut_.whole_elements(blocks) * static_cast<double>(size_of(cut_.model.gradient_dtype)) /
                          (cut_.zero > 0 ? cut_.shards : 1);
      sent["tp"] += 2 * part * (cut_.layout.tp - 1) / cut_.layout.tp;
      us += price_us(OpKind::kAllReduce, part, "tp", on_cores);
    }
    if (cut_.layout.fsdp > 1 && cut_.layout.dp > 1) {
      double part = 0;
      for (const int g : cut_.groups_of(blocks))
        part += cut_.frozen(g) ? 0 : cut_.gradient_ratio() * static_cast<double>(cut_.shard_bytes(g));
      sent["dp"] += 2 * part * (cut_.layout.dp - 1) / cut_.layout.dp;
      us += price_us(OpKind::kAllReduce, part, "dp", on_cores);
    }
    return us;
  }

  // The first and the last stage sum the gradient of a tied embedding, or of its shard.
  double tied_us(int stage, double& on_cores, std::map<std::string, double>& sent) const {
    const auto& layout = cut_.layout;
    if (layout.tied_axis == kNoAxis || (stage > 0 && stage + 1 < layout.pp)) return 0;
    const std::set<int> first = cut_.groups_of(cut_.blocks_of(0)), last = cut_.groups_of(cut_.blocks_of(layout.pp - 1));
    double bytes = 0;
    for (const int g : first) {
      const int64_t weights = cut_.zero > 0 ? cut_.shard_bytes(g) : cut_.weight_bytes(g);
      bytes += last.contains(g) && !cut_.frozen(g) ? cut_.gradient_ratio() * static_cast<double>(weights) : 0;
    }
    if (bytes == 0) return 0;
    const auto price = cost_.price(OpKind::kAllReduce, std::llround(bytes), layout.mesh, layout.tied_axis);
    sent["pp"] += bytes;  // 2(n-1)/n of it for two stages
    on_cores += price.work_us;
    return price.latency_us + price.work_us;
  }

  // Reads gradient, weight and states, and writes weight and states; the norm reads the gradient once more. States on
  // another tier are updated there, at its rate; gradients go there and weights come back.
  double update_us(double psi) const {
    const spec::StateBytes bytes = spec::state_bytes(cut_.run);
    const double own = cut_.zero >= 1 ? psi / cut_.shards : psi;
    const double here = pass_us({}, own * 2 * (bytes.gradient + bytes.weight));
    const std::string& offload = cut_.run.strategy.offload;
    if (offload == "none" || (offload == "states" && !cluster_.device.has_own_device))
      return pass_us({}, own * 2 * (bytes.gradient + bytes.weight + bytes.states));
    const double rate = offload == "nvme" ? cluster_.device.nvme_bytes_per_us : cluster_.device.host_link_bytes_per_us;
    return here + own * 2 * bytes.states / rate +
           own * (bytes.gradient + bytes.weight) / cluster_.device.host_link_bytes_per_us;
  }

  const PartitionedModel& cut_;
  const Cluster& cluster_;
  const program::Calibration machine_;
  const CollectiveCostModel& cost_;
  double oversubscription_ = 1, ranks_of_host_ = 1;
};

}  // namespace

void add_time(const PartitionedModel& cut, int stage, const Cluster& cluster, const CollectiveCostModel& cost,
              Prediction& out) {
  StageTime(cut, cluster, cost).add_to(stage, out);
}

}  // namespace herd::planner
