// Expert parallel over one axis of P ranks, of which each holds 1/P of every layer's experts. Each rank works on its
// own samples. A layer with experts has three blocks for them (spec/expert_part_shapes.cpp):
//   route    chooses experts, and gives a row for each token and expert
//   experts  runs this rank's experts on the rows of all ranks (BlockShape::by_experts)
//   combine  adds up the rows of each token
// Between them a step has these ops:
//   all_gather  routing<b>.m.shard(ep) -> routing<b>.m       each rank learns how many rows each has for each expert
//   all_to_all  x<b>.m, routing<b>.m -> x<b>.m.shard(ep:experts)   rows go to the ranks of their experts
//   all_to_all  x<b>.m.shard(ep:experts), routing<b>.m -> x<b>.m   and their outputs back
// In backward the gradients of the outputs go as rows did, and those of rows come back. What is routed is known only
// while a step runs: how many rows an exchange moves follows from the counts in the routing that it reads. A pass that
// is computed again takes over the routing of the first, so counts are told once.
// For each row whose expert another rank holds, a rank sends 4 * width * bytes of an element: 2 in forward, 2 in
// backward; a recomputed forward 2 more; less between hosts, to which each token, and the gradient of its output, goes
// once. The latter is why an exchange of gradients of outputs also reads that of the tokens' outputs. What exchanges do
// with counts is a pure function (nn/expert_exchange.h), whose test follows each token. The gradient of an expert has
// the contributions of all P ranks at once, so it is summed over the ranks that hold the same experts alone
// (spec::Layout::expert_sum_axis). ZeRO cuts experts over these ranks, all others over the ranks that cut them without
// experts (ShardAxes in zero1.h). Source: Lepikhin et al. 2020, arXiv:2006.16668; Liu et al. 2025, arXiv:2504.14960.
// Threads: pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

// What an exchange to other hosts takes while it runs depends on these. A rank hands on the tokens that ranks of H - 1
// other hosts have for its own. For t bytes of its own tokens, of which each has at most m = min(top_k, experts/H)
// experts on a host, it holds at most
//   (H - 1) t     the tokens that it sends to relays
//   (H - 1) t     those that it relays
//   (H - 1) m t   the rows of these
// and in backward the weights of these rows, sent and relayed, and the rows of one source in fp32. All of its tokens
// may have experts on each host, so this is a bound.
struct HostRelays {
  int ranks_per_host = 0;  // neighbours; 0 = all ranks are on one host, or nobody knows
  int64_t top_k = 1, experts = 1, width = 1;
};
int64_t relay_bytes(const HostRelays& relays, int64_t hosts, int64_t tokens_bytes, int64_t element_bytes);

class ExpertParallel final : public Strategy {
 public:
  // `model` is the chain of the step that will be rewritten; it is not kept.
  ExpertParallel(int axis, const spec::ModelTable& model, const HostRelays& relays);
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  // What the blocks of a mixture do with rows that ranks exchange.
  enum class Role : uint8_t { kNone, kRoutes, kRunsExperts, kCombines };
  struct Block {
    Role role = Role::kNone;
    int routed_by = -1;  // the block that chooses experts for its rows
    int combined_by = -1;
  };
  class Exchanges;

  int axis_;
  HostRelays relays_;
  int64_t element_bytes_ = 4;
  std::vector<Block> blocks_;
  std::vector<int64_t> routing_bytes_, exchanged_bytes_;  // by block
  int64_t counts_bytes_ = 0;                              // of all ranks, in the bytes of a routing
};

// Returns by block which block has chosen experts for the rows that it routes, runs or combines; -1 for all others.
std::vector<int> routed_by(const spec::ModelTable& model);

// Returns the groups of which ranks of mesh.ep hold parts, ascending.
std::set<int> groups_of_experts(const spec::ModelTable& model);

// Returns what beside mesh.ep > 1 this version refuses.
std::optional<spec::Unsupported> unsupported_with_expert_ranks(const spec::RunFile& run);

Technique expert_parallel_row();  // applies where mesh.ep > 1

}  // namespace herd::strategies
