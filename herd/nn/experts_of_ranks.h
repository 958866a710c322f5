// Defines the parts of a layer whose experts several ranks hold, and what moves rows between them. Each part is a block
// (spec/expert_part_shapes.cpp), and what moves rows are ops of the Program (strategies/expert_parallel.h).
//   P ranks, each with E/P neighbours of E experts (experts.h); N tokens of this rank, k experts of each; width D, e
//   bytes an element; P rows of this rank's tokens, Q rows that come to its experts
//     route    n (.., D)          -> rows (P, D), weights (.., k), output of shared experts, losses of routers
//     experts  rows (Q, D)        -> outputs (Q, D), in the order (expert, source, token)
//     combine  outputs (P, D), weights, output of shared experts -> y (.., D)
// Rows, one for each token and expert, go to the rank of their expert; nothing is padded. The outputs go back the same
// way, and a token adds its k terms in fp32, in the order of its choices. In backward the gradients of the outputs go
// as rows did, and those of rows as outputs did. Before the first exchange every rank learns how many rows each has for
// each expert: (P-1) * 8E bytes.
// For each row whose expert another rank holds, forward sends 2 D e bytes, and backward as much again. Between hosts a
// row, and the gradient of an output, is sent once for a token and a host, whatever experts it has there; a rank of
// that host makes the rows of it. Under a uniform router that is 1 less C(E - E/H, k)/C(E, k) of D e bytes for a token
// and each of the other H - 1 hosts, in place of k/H. The values are those of rows that go straight, to the bit.
// Messages of uneven sizes carry the rows, inside a host and back in steps that are the same for any routing
// (row_steps.h). The bits are the same in every run. A
// rank without tokens, and one whose experts get none, takes part like any other. On a device the rows and what they
// are made of lie there; choices and counts are the host's, and a thread that exchanges rows waits for them.
// Threads: one at a time. What has a communicator is collective over its ranks.
#pragma once

#include <span>
#include <vector>

#include "herd/nn/mixture.h"

namespace herd::comm {
class Communicator;
}

namespace herd::nn {

// Each of these REQUIRES context.routing.
class RouteRows final : public Block {
 public:
  // `groups` have the parameters that MixtureRouter takes.
  RouteRows(std::string name, GroupList groups, const std::string& prefix, const MixtureShape& shape);
  // Takes what RoutedExperts takes. It keeps what it chooses in context.routing, or takes over what is there.
  Tuple forward(const Tuple& n_SD, const Context& context) override;
  std::vector<Buffer> buffers() const override { return router_.buffers(); }
  const std::shared_ptr<RouterState>& router_state() const { return router_.state(); }

 private:
  MixtureRouter router_;
};

class OwnExperts final : public Block {
 public:
  OwnExperts(std::string name, GroupList groups, const std::string& prefix);
  Tuple forward(const Tuple& rows_QD, const Context& context) override;

 private:
  ExpertParameters experts_;
};

class CombineRows final : public Block {
 public:
  CombineRows(std::string name, GroupList groups);
  Tuple forward(const Tuple& outputs_PD, const Context& context) override;
};

// Tells all ranks how many rows each has for each expert. `hosts_P` has the host of each rank, counted from 0; empty =
// all are on one.
void tell_counts(KeptRouting& routing, std::span<const int> hosts_P, comm::Communicator& ranks);
// Gives rows to the ranks of their experts, and returns those that come. Of gradients of outputs, `of_tokens` are those
// of the tokens (N, D); undefined = they are rows of tokens. REQUIRES that counts are told.
at::Tensor give_rows(const KeptRouting& routing, const at::Tensor& rows_PD, const at::Tensor& of_tokens_ND);
at::Tensor bring_back_rows(const KeptRouting& routing, const at::Tensor& rows_QD);
// Returns the bytes that this rank has sent to others by these functions, counts included.
int64_t sent_bytes(const KeptRouting& routing);

// Returns the host of each rank, counted from 0; empty where all are on one.
std::vector<int> hosts_of_ranks(const comm::Communicator& ranks);

}  // namespace herd::nn
