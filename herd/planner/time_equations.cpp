#include <algorithm>
#include <cmath>
#include <utility>

#include "herd/planner/equations_internal.h"
#include "herd/spec/model_states.h"
#include "herd/spec/pipeline.h"
#include "herd/strategies/replicas.h"
#include "herd/strategies/shared_groups.h"

namespace herd::planner {
namespace {

using program::OpKind;

// Predicts the time and the traffic of one pipeline stage by equations.
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
    const Passes micro_batch = passes(blocks);
    const double m = cut_.layout.micro_batches, trained = cut_.trained_elements(blocks);
    out.flops = m * micro_batch.flops;
    out.compute_us = m * micro_batch.arithmetic;
    double cores_us = 0;
    const double communication_us = data_parallel_us(blocks, cores_us, out.sent) + tied_us(stage, cores_us, out.sent);
    const double backward =
        (cut_.zero >= 2 ? m : 1) * micro_batch.backward + (cut_.zero >= 3 ? m * micro_batch.forward : 0);
    // A device, or idle cores, send while the ranks compute. Cores that all compute have to do both.
    const double first_bucket =
        trained > 0
            ? communication_us * std::min(1.0, static_cast<double>(cut_.run.strategy.bucket) /
                                                   (trained * static_cast<double>(size_of(cut_.model.gradient_dtype))))
            : 0;
    const bool has_idle_cores = machine_.cores > ranks_of_host_ * machine_.threads;
    const double overlapped_us = has_idle_cores ? communication_us : communication_us - cores_us;
    const double exposed_us =
        communication_us - overlapped_us + std::max(first_bucket * (has_idle_cores ? 1 : 0), overlapped_us - backward);
    out.step_us = m * (micro_batch.forward + micro_batch.backward) / (1 - idle_share(cut_)) +
                  std::max(0.0, exposed_us) + update_us(trained, out);
    const double boundary_bytes = static_cast<double>(cut_.model.blocks[1].output_bytes);
    if (cut_.layout.pp > 1) out.sent["pp"] += m * boundary_bytes * (stage > 0 && stage + 1 < cut_.layout.pp ? 2 : 1);
    for (size_t b = blocks.begin; b < blocks.end; ++b) {
      for (const auto& inner : cut_.model.blocks[b].inner) {
        const double n = inner.axis == "tp" ? cut_.layout.tp : cut_.layout.cp;
        double times = inner.times_forward + (b >= cut_.first ? inner.times_backward : 0);
        if (cut_.recomputed(b)) times += inner.*times_again(b, blocks);
        out.sent[inner.axis] +=
            m * times * (inner.is_all_reduce ? 2 : 1) * static_cast<double>(inner.bytes) * (n - 1) / n;
      }
    }
  }

 private:
  // Says how often a collective runs when its block is recomputed: the last block of a segment is run for its graph
  // alone, the blocks before it for their outputs, too.
  int spec::InnerCollective::*times_again(size_t b, const BlockInterval& blocks) const {
    return cut_.ends_segment(b, blocks) ? &spec::InnerCollective::times_recompute
                                        : &spec::InnerCollective::times_forward;
  }

  // Returns the time of a block's inner collectives in one pass.
  double inner_us(const spec::BlockShape& block, int spec::InnerCollective::*times) const {
    double us = 0;
    for (const auto& collective : block.inner) {
      const auto price = cost_.price(collective.is_all_reduce ? OpKind::kAllReduce : OpKind::kAllGather,
                                     collective.bytes, cut_.layout.mesh, cut_.layout.mesh.find(collective.axis));
      us += collective.*times * (price.latency_us + price.work_us * oversubscription_);
    }
    return us;
  }
  // Returns the time of a pass of one rank while all ranks of its host run the same: cores or the memory bus limit it.
  double pass_us(const spec::PassCost& cost, double more_bytes, int parts = 1) const {
    const auto [work_us, bytes] = program::pass_work(cost, more_bytes, machine_);
    const double op_us = work_us + (parts - 1) * machine_.op_overhead_us;
    return std::max(op_us * oversubscription_, bytes * ranks_of_host_ / machine_.host_bytes_per_us);
  }
  // Returns the bytes of the gradients of a block's weights.
  double gradient_bytes(size_t b) const {
    double elements = 0;
    for (const int g : cut_.model.blocks[b].groups)
      elements += cut_.frozen(g) ? 0 : static_cast<double>(cut_.model.group_elements(g));
    return elements * static_cast<double>(size_of(cut_.model.gradient_dtype));
  }

  struct Passes {
    double forward = 0, backward = 0, arithmetic = 0, flops = 0;
  };
  // Adds up the passes of one micro-batch.
  Passes passes(const BlockInterval& blocks) const {
    Passes out;
    const double gradient_accesses = cut_.layout.micro_batches > 1 ? 2 : 1;  // later micro-batches read it, too
    const auto count = [&](const spec::PassCost& cost) {
      out.flops += cost.matmul_flops + cost.attention_flops;
      out.arithmetic +=
          (cost.matmul_flops / machine_.matmul_flops_per_us + cost.attention_flops / machine_.attention_flops_per_us) /
          machine_.threads;
    };
    for (size_t b = blocks.begin; b < blocks.end; ++b) {
      const auto& block = cut_.model.blocks[b];
      const double forward =
          pass_us(block.forward, cut_.is_head(b) ? gradient_accesses * gradient_bytes(b) : 0, block.num_program_blocks);
      (cut_.is_head(b) ? out.backward : out.forward) +=
          forward + inner_us(block, &spec::InnerCollective::times_forward);
      count(block.forward);
      if (b < cut_.first) continue;
      out.backward += inner_us(block, &spec::InnerCollective::times_backward);
      if (cut_.is_head(b)) continue;
      out.backward += pass_us(block.backward, gradient_accesses * gradient_bytes(b), block.num_program_blocks);
      count(block.backward);
      if (cut_.recomputed(b)) {
        out.backward += forward + inner_us(block, times_again(b, blocks));
        count(block.forward);
      }
    }
    return out;
  }

  double price_us(OpKind kind, double bytes, const std::string& axis, double& cores_us) const {
    const auto price = cost_.price(kind, std::llround(bytes), cut_.layout.mesh, cut_.layout.mesh.find(axis));
    cores_us += price.work_us;
    return price.latency_us + price.work_us;
  }

  // Returns the time of the collectives of gradients, and of weights where they are shards. Adds the part of it that
  // cores spend to cores_us.
  double data_parallel_us(const BlockInterval& blocks, double& cores_us, std::map<std::string, double>& sent) const {
    const double m = cut_.layout.micro_batches;
    double us = 0;
    if (cut_.shards > 1) {
      const double n = cut_.shards,
                   reduces = cut_.zero >= 2 ? m : 1;  // gradient shards are reduced in every micro-batch
      double whole = 0;
      int num_trained_groups = 0;
      for (const int g : cut_.groups_of(blocks)) {
        if (cut_.frozen(g)) continue;
        ++num_trained_groups;
        whole += static_cast<double>(cut_.zero > 0 ? cut_.shard_bytes(g) * cut_.shards : cut_.weight_bytes(g));
      }
      const double gathered = cut_.zero == 3 ? cut_.gathered_bytes(cut_.visits(blocks)) : cut_.zero > 0 ? whole : 0;
      const double reduced = whole * cut_.gradient_ratio();
      // Bytes of reduce-scatters and all-gathers, each of which is half of an all-reduce.
      const double scatter_gather_bytes = cut_.zero == 0 ? 2 * reduced : reduces * reduced + gathered;
      sent[cut_.axis] += scatter_gather_bytes * (n - 1) / n;
      us += price_us(OpKind::kAllReduce, reduced, cut_.axis, cores_us) * scatter_gather_bytes / (2 * reduced);
      cores_us *= scatter_gather_bytes / (2 * reduced);
      if (cut_.zero > 0) sent[cut_.axis] += 2 * 8 * static_cast<double>(num_trained_groups) * (n - 1) / n;  // norms
    }
    // With sequence parallelism, each rank has the gradients of whole weights from its own rows only. They are summed
    // over axis tp, as shards where ZeRO cuts them.
    if (cut_.layout.tp > 1 && cut_.run.strategy.sequence_parallel) {
      const double part = cut_.whole_elements(blocks) * static_cast<double>(size_of(cut_.model.gradient_dtype)) /
                          (cut_.zero > 0 ? cut_.shards : 1);
      sent["tp"] += 2 * part * (cut_.layout.tp - 1) / cut_.layout.tp;
      us += price_us(OpKind::kAllReduce, part, "tp", cores_us);
    }
    if (const int copies = cut_.layout.dp * cut_.layout.cp; cut_.layout.fsdp > 1 && copies > 1) {
      const std::string& axis =
          cut_.layout.mesh.axes.at(static_cast<size_t>(strategies::all_reduced_axis(cut_.run, cut_.layout))).name;
      double part = 0;
      for (const int g : cut_.groups_of(blocks))
        part += cut_.frozen(g) ? 0 : cut_.gradient_ratio() * static_cast<double>(cut_.shard_bytes(g));
      sent[axis] += 2 * part * (copies - 1) / copies;
      us += price_us(OpKind::kAllReduce, part, axis, cores_us);
    }
    return us;
  }

  // Returns the time in which the first and the last stage sum the gradient of a tied embedding, or of its shard.
  double tied_us(int stage, double& cores_us, std::map<std::string, double>& sent) const {
    const auto& layout = cut_.layout;
    const int tied = strategies::axis_of_tied_groups(layout);
    if (tied == kNoAxis || (stage > 0 && stage + 1 < layout.pp)) return 0;
    const std::set<int> first = cut_.groups_of(cut_.blocks_of(0)), last = cut_.groups_of(cut_.blocks_of(layout.pp - 1));
    double bytes = 0;
    for (const int g : first) {
      const int64_t weights = cut_.zero > 0 ? cut_.shard_bytes(g) : cut_.weight_bytes(g);
      bytes += last.contains(g) && !cut_.frozen(g) ? cut_.gradient_ratio() * static_cast<double>(weights) : 0;
    }
    if (bytes == 0) return 0;
    const auto price = cost_.price(OpKind::kAllReduce, std::llround(bytes), layout.mesh, tied);
    sent["pp"] += bytes;  // 2(n-1)/n of the bytes for n = 2 stages
    cores_us += price.work_us;
    return price.latency_us + price.work_us;
  }

  // Returns the time of the update of `trained` elements. It reads gradient, weight and states, and writes weight and
  // states; the norm reads the gradient once more. States on another tier are updated there, at its rate; gradients go
  // there and weights come back.
  double update_us(double trained, Prediction& out) const {
    const spec::StateBytes bytes = spec::state_bytes(cut_.run);
    const double own_elements = cut_.zero >= 1 ? trained / cut_.shards : trained;
    const double weights_us = pass_us({}, own_elements * 2 * (bytes.gradient + bytes.weight));
    const std::string& offload = cut_.run.strategy.offload;
    if (offload == "none" || (offload == "states" && !cluster_.device.has_own_device))
      return pass_us({}, own_elements * 2 * (bytes.gradient + bytes.weight + bytes.states));
    if (cluster_.device.has_own_device) {
      out.host_link_out = own_elements * bytes.gradient;
      out.host_link_in = own_elements * bytes.weight;
    }
    const double rate = offload == "nvme" ? cluster_.device.nvme_bytes_per_us : cluster_.device.host_link_bytes_per_us;
    return weights_us + own_elements * 2 * bytes.states / rate +
           own_elements * (bytes.gradient + bytes.weight) / cluster_.device.host_link_bytes_per_us;
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
