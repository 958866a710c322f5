// Sends each token to the ranks that hold its experts (experts.h), and brings their outputs back.
//   P ranks, each with E/P neighbours of E experts; N tokens of this rank, k experts of each; width D, e bytes an
//   element
// These steps follow each other:
//   - Every rank learns how many rows each has for each expert: (P-1) * 8E bytes.
//   - A rank's rows, one for each token and expert, go to the rank of their expert; nothing is padded.
//   - Experts multiply them in the order (expert, source, token).
//   - The outputs go back the same way, and a token adds its k terms in fp32, in the order of its choices.
//   - In backward the gradients of the outputs go as rows did, and those of rows as outputs did.
// For each row whose expert another rank holds, forward sends 2 D e bytes, and backward as much again. A forward that
// is computed again sends its rows again. Between hosts a row, and the gradient of an output, is sent once for a token
// and a host, whatever experts it has there; a rank of that host makes the rows of it. Under a uniform router that is 1
// less C(E - E/H, k)/C(E, k) of D e bytes for a token and each of the other H - 1 hosts, in place of k/H. The values
// are those of rows that go straight, to the bit. Messages of uneven sizes carry the rows, and no schedule is made for
// a routing. The bits are the same in every run. A rank without tokens, and one whose experts get none, takes part like
// any other. The graph keeps, beside what experts.h keeps of the rows that have come, these rows and the outputs that
// have come back. REQUIRES a CPU. Threads: one at a time. Collective over the ranks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "herd/nn/experts.h"

namespace herd::comm {
class Communicator;
}

namespace herd::nn {

class RowTransfer;

// `own` are the parameters of this rank's experts, of which there are `experts` over all ranks. `hosts_P` has the host
// of each rank, counted from 0; empty = all are on one. `kept` holds the counts of the choices from the first pass over
// them to the next ones; null = each pass tells them.
at::Tensor experts_of_ranks(const at::Tensor& x, const Routing& routing, const ExpertParameters& own, int64_t experts,
                            comm::Communicator& ranks, std::span<const int> hosts_P = {},
                            std::shared_ptr<const RowTransfer>* kept = nullptr);

// Returns the host of each rank, counted from 0; empty where all are on one.
std::vector<int> hosts_of_ranks(const comm::Communicator& ranks);

}  // namespace herd::nn
