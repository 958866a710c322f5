// Proves the programs of all ranks: runs them on symbols for two steps, in one legal order. Lanes start ops in order,
// ops wait for the derived hazards, and a collective runs when all ranks of the axis have come to it. What is expected
// follows from the model and the mesh, never from the programs under test. These are the symbols:
//   weight      is a version. Uses in step t must see version t, and the step leaves t+1. A frozen one stays at 0. What
//               an encode makes of it has lost something, and so has what is decoded of that. Passes may use it where
//               the proof says so; updates, and what stays from step to step, must be exact.
//               The version counts updates; where they are delayed, the symbol also says from which step on it lacks
//               gradients, and a pass may lack as many as the proof says.
//   gradient    is a set of contributions (block, micro-batch, data rank). kStep and kNorm must see the expected set.
//               Where ranks share the tokens of samples, each of them counts as a data rank of its own. Where ranks
//               hold parts of the experts, a contribution also names the part.
//   activation  is what made it (block, tensor, micro-batch, data rank, step). It must be whole, a shard by rows or by
//               heads, or partial along the tensor axis, and a shard by rows or by heads along the context axis, as the
//               blocks that make and read it need. Its gradient is the set of its readers.
//   owned       is at one rank alone, the one that the proof names, which alone updates the group.
//   pushed      is a round of the parameter servers, which must hold what a gradient must, and its step's alone. The
//               pull of step t gets the weights that rounds 0 to t make; with a staleness s, those of this rank's
//               pushes of steps 0 to t and of all others' up to step t - s, at least: a version in [t + 1 - s, t + 1].
//   factor      is the set of groups whose norms it has seen, each with all contributions.
//   rows        of experts that ranks share are the activations of all these ranks, each once, at the ranks of their
//               experts, and each rank's own ones again once they have come back. What moves them reads the routing
//               of the block that has chosen their experts, of the same micro-batch and step.
//   routing     is (block, micro-batch, data rank, step). Where it is kept, only a pass without a graph makes it, and
//               each pass with one reads it. Where ranks share experts, all of them tell each other theirs.
//   cache       is (block, data rank) and a version. A pass that continues caches must read version t of its own
//               block's cache in step t, and leave t+1.
// A shard may lie in the slot of its whole. Writing one of them then spoils the other, unless the op gathers in place.
// verify() reports these faults:
//   - a contribution that is missing or doubled, and a stale or future weight;
//   - a value read that holds nothing, or another value;
//   - a value that is overwritten or released unread, or never released, and a slot that is taken while in use;
//   - collectives of an axis that differ between ranks, and messages that nobody receives;
//   - a sum that is left out, made twice or made over other ranks, and a shard taken for a whole;
//   - a deadlock, where a send completes only with its receive;
//   - an op with other reads or writes than its kind has.
// Threads: pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "herd/program/program.h"
#include "herd/spec/block_shape.h"

namespace herd::program {

// Says which rules must hold of the programs. Strategies establish them one after the other; the defaults are those of
// a finished step.
struct Proof {
  bool data_ranks_summed = true;  // true: gradients hold the contributions of all data and context ranks
  // With `data_ranks_summed` false, gradients hold the contributions of all ranks along this axis; kNoAxis: one rank's.
  int summed_axis = kNoAxis;
  bool staged = false;        // true: each rank runs the blocks of its pipeline stage; false: it runs all blocks
  bool stages_summed = true;  // true: gradients hold the contributions of all stages; false: those of one stage
  // True: gradients hold the contributions of all shards of token rows (sequence parallel); false: those of one shard.
  bool rows_summed = true;
  bool copies_summed = true;  // true: gradients hold those of all ranks with a copy of the part; false: one rank's
  bool blocks_split = true;   // true: ranks of the tensor axis share blocks as block_splits says; false: none is shared
  bool tokens_cut = true;  // true: ranks of the context axis share tokens as block_by_heads says; false: none is shared
  bool experts_cut = true;  // true: ranks of the expert axis hold parts of expert_groups; false: each holds all of them
  int shard_axis = kNoAxis;         // axis that cuts persistent shards, or along which groups have owners
  int expert_shard_axis = kNoAxis;  // axis that cuts those of expert_groups in its place, where experts are cut
  // By parameter group: the place on shard_axis of the rank that owns it. Empty = every rank owns a shard of each.
  std::vector<int> owners = {};
  // Axes into which shard_axis falls where gathers go along one and then along the other. What is gathered `between`
  // groups of ranks makes shards `within` each: its ranks then hold a weight together, each the shards of all ranks at
  // its own place of their groups. kNoAxis = gathers go along shard_axis itself.
  struct Hops {
    int between = kNoAxis, within = kNoAxis;
  };
  Hops hops = {};
  // Codec in which weights are gathered: passes use what is decoded of it, and shards in it are kept from step to step.
  Codec weight_codec = Codec::kPlain;
  std::set<int> direct_blocks = {};  // blocks whose passes may read weights on the host
  int num_servers = 0;               // of the ranks along shard_axis, so many of the first are parameter servers, too
  // Parameter servers that are ranks of their own. They hold all states, and no Program is proved of them: the version
  // of a weight follows from the rounds that ranks have pushed.
  int dedicated_servers = 0;
  bool has_servers() const { return num_servers + dedicated_servers > 0; }
  int staleness = 0;  // steps that a weight's version may be behind in other ranks' pushes, or kNoBound
  // Steps from a gradient to the update that it makes. With 1, the update in step t is of the gradient of step t - 1,
  // so passes of step t + 1 lack that of step t. What waits stays on the host from step to step.
  int update_delay = 0;
  // True: what encoding gradients loses is kept in residuals; false: it is lost, and shards are summed of encoded
  // terms.
  bool losses_kept = true;
  // True: in blocks of block_routes that are computed again, the first pass over a micro-batch keeps what the router
  // has chosen, and the pass with a graph takes that over; false: each pass chooses.
  bool routing_kept = false;
  bool clipped = true;   // true: every kStep reads a factor that has seen every group
  bool released = true;  // true: only persistent values are left at the end of a step
};

// Says what the model and the layout ask for. Vectors that begin with block_, and backward_without_weights, have an
// entry for each block.
struct Expectation {
  std::vector<std::vector<int>> block_groups;       // parameter groups that a block reads
  std::vector<bool> backward_without_weights = {};  // by block; empty = every backward reads its block's weights
  std::vector<std::vector<spec::TensorId>> block_inputs = {};  // tensors that a block reads; empty = x<b> alone
  // By block, tells of each tensor that it gives whether the tensor gets a gradient; empty = every block gives one
  // tensor, which gets one.
  std::vector<std::vector<bool>> block_outputs = {};
  bool has_targets = true;  // true: the loss reads targets; false: it reads tensors of the batch alone
  std::vector<spec::Split> block_splits = {};  // empty = ranks share no block
  std::vector<bool> block_gives_heads = {};    // tells which cut blocks give the tensor of a rank's heads; empty = none
  std::set<int> frozen_groups = {};            // groups without gradient, whose weights no step may change
  int micro_batches = 1;
  bool trains = true;  // false: the programs compute losses alone, and no version changes
  Mesh mesh = {};      // which says what ranks divide: samples, tokens, layers, stages, experts
  // Where ranks divide tokens: blocks that work on all tokens of a part of the heads; all others work on a part of the
  // tokens. Gradients are then summed over all ranks that divide samples or tokens.
  std::vector<bool> block_by_heads = {};
  // Tells of each block whether the ranks that divide tokens run it together, as a ring, and whether those do that have
  // parts of the same sequences, as a router of whole ones: those that divide tokens or layers, once tokens are
  // cut, before that those that divide layers.
  std::vector<bool> block_in_ring = {}, block_shares_choices = {};
  // Ranks that divide experts hold parts of expert_groups, and blocks of block_by_experts work on the rows of all of
  // them: a gradient of such a group then gets the contributions of all these ranks at once.
  std::set<int> expert_groups = {};
  std::vector<bool> block_by_experts = {};
  std::vector<int> block_routed_by = {};  // by block, which block chooses experts for its rows; -1 = none
  std::vector<bool> block_routes = {};    // tells which blocks have a router, and a backward; empty = none
  // Tensors of which each rank that divides layers has all, whatever its block cuts.
  std::set<spec::TensorId> whole_tensors = {};
  // Groups of which ranks hold the same part of a cut block, each for its own query heads, with the axis of these
  // ranks: keys and values with fewer heads than tensor-parallel ranks, norms of heads.
  std::map<int, int> copied_groups = {};
  std::vector<int> block_rank = {};  // by block, the place of the rank that runs it among those that divide stages
  // Tells which blocks keep a cache of keys and values in a pass that continues texts; empty = no such pass.
  std::vector<bool> block_caches = {};
  // True: the pass reads caches of the tokens before, and adds to them; false: it begins them.
  bool continues_caches = false;
  Proof proof = {};
};

struct Finding {
  int rank = 0;
  int op = -1;  // index into Program::ops; -1 = the program as a whole
  std::string text;
};

// Returns what breaks the rules, at most 20 findings; nothing for programs that are proved. `programs` holds one for
// every rank of the mesh, by rank. Later findings may be consequences of the first.
std::vector<Finding> verify(const std::vector<Program>& programs, const Expectation& expected);

// Returns "rank 1, op 14 all_reduce of g3 on dp ...", a line for each finding; nothing for none.
std::string to_string(const std::vector<Finding>& findings, const std::vector<Program>& programs);

}  // namespace herd::program
