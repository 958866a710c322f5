// Resolves the numbers of a run that follow from its file and the number of ranks. Threads: pure.
#pragma once

#include <cstdint>
#include <string>

#include "herd/spec/pipeline_form.h"
#include "herd/spec/run_file.h"
#include "herd/topology/mesh.h"

namespace herd::spec {

struct Layout {
  int world_size = 1;         // the ranks that train
  int dedicated_servers = 0;  // ranks of the job beside them, the last ones, which are parameter servers alone
  // Holds the axes of two ranks or more: pp, dp, fsdp, cp, tp, from the outermost to the innermost, whose ranks are
  // neighbours. Then follow an axis dp*fsdp if both exist, products of these with cp, and an axis of the first and the
  // last stage if the embedding is tied, then local_axis and hosts_axis. Then "keys" (key_copies_axis) if ranks hold
  // copies of key and value heads, "ep" and "edp" (expert_axis, expert_sum_axis), and "cp*tp" (sequence_axis).
  Mesh mesh = {};
  // Each of these axes says what its ranks divide (Axis::divides), with the axis of data and context ranks for samples
  // and tokens together. Who has to know what an axis is for asks the mesh; the next members, indices of axes in it or
  // kNoAxis, are for the techniques that work along one.
  int data_axis = kNoAxis;     // its ranks work on samples of their own
  int context_axis = kNoAxis;  // its ranks share the tokens of each sample
  // Its ranks contribute to the same gradients: data and context ranks. Where mesh.fsdp > 1, replica_axis has those of
  // them that hold copies of a shard.
  int gradient_axis = kNoAxis, replica_axis = kNoAxis;
  int stage_axis = kNoAxis;       // its ranks run the stages of one pipeline
  int tensor_axis = kNoAxis;      // its ranks share the work on each sample
  int key_copies_axis = kNoAxis;  // its ranks hold copies of the same key and value heads
  // Its ranks hold the experts together, neighbours of the data axis; those of expert_sum_axis hold the same ones.
  int expert_axis = kNoAxis, expert_sum_axis = kNoAxis;
  // Its ranks have parts of the same sequences, and run together what is of whole ones: the context or the tensor axis,
  // or where routers need both the product of these.
  int sequence_axis = kNoAxis;
  // With strategy.secondary_shard and several hosts: of the ranks that cut weights into shards, those of one host, and
  // those at the same place of their hosts.
  int local_axis = kNoAxis, hosts_axis = kNoAxis;
  int tied_axis = kNoAxis;  // its ranks have the first and the last stage, which both hold a tied embedding
  // Sizes of the axes of [mesh].
  int dp = 1, fsdp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
  int64_t batch = 1;        // sequences per optimizer step, over all ranks
  int64_t micro_batch = 1;  // sequences per rank and micro-batch, at most samples_max
  // A data rank has floor or ceil of batch / data_ranks() samples; data/batch.h says which rank has which.
  int64_t samples_min = 1, samples_max = 1;
  int micro_batches = 1;  // ceil(samples_max / micro_batch), the same on all ranks: a short rank adds rows of weight 0
  int64_t tokens = 0;     // tokens per optimizer step, over all ranks
  PipelineForm pipeline = {};
  int data_ranks() const { return dp * fsdp; }
  int gradient_ranks() const { return dp * fsdp * cp; }
  int expert_place(int rank) const {
    return mesh.index(expert_axis, rank);
  }  // returns which part of the experts it has
  std::vector<int> ranks_of_pipeline(int rank) const {
    return mesh.ranks(stage_axis, rank);
  }  // returns those of its own
};

// `num_ranks` counts those of the job. Throws kBadConfig if the mesh does not cover the ranks that train.
// strategies::trainable_layout() checks whether this version can run it.
Layout resolve_mesh(const RunFile& run, int num_ranks);

// Returns the ZeRO stage that a run file asks for; mesh.fsdp > 1 means 3 where strategy.zero is 0.
int stated_zero_stage(const RunFile& run);

// Returns "2 ranks = dp 2 | 12 sequences a step = 6 a rank = 3 micro-batches of 2 | 3072 tokens a step".
std::string summary(const Layout& layout);

}  // namespace herd::spec
