// Defines the symbols of verify_program.h: what a value stands for while programs are verified. Threads: plain data.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "herd/program/verify_program.h"

namespace herd::program {

// Names one contribution. For norms it is (group, shard, shards, part), for all else (block, micro-batch, data rank,
// part). `part` is the place on the tensor axis if the contribution is of one of its ranks alone, else 0; for experts
// it counts on from Model::first_contribution_of(). For gradients of weights, and for rows at the ranks of their
// experts, the data rank is Model::gradient_rank().
using Atom = std::tuple<int, int, int, int>;

// Says which part of an activation a rank holds along an axis.
struct Cut {
  int place = 0;  // on the axis
  Dimension by = Dimension::kRows;
  bool operator==(const Cut&) const = default;
};

// Holds which parts of a gradient are summed already, where ops sum it part by part (Op::parts). All of them hold the
// same contributions.
struct SummedParts {
  std::vector<bool> is_summed = {};  // by Op::part; empty: the gradient is not cut, or is summed as a whole
  int num_summed = 0;
  std::set<Atom> atoms = {};  // contributions that the summed parts hold, beside the `Symbol::atoms` of the rest
  bool empty() const { return num_summed == 0; }
  bool operator==(const SummedParts&) const = default;
};

struct Symbol {
  ValueKind kind = ValueKind::kActivation;
  int index = 0;              // parameter group, for weights, gradients and states
  int version = 0;            // version of weights, states and caches; for others the step that made them
  int shard = 0, shards = 1;  // which shard of weights, gradients and states it is, of how many; 0 of 1 for a whole
  int oldest = 0;             // weights lack no gradient before this step, or of servers no push of another rank
  bool partial = false;       // true for a partial sum of an activation or a gradient
  std::set<Atom> atoms = {};  // contributions that it holds
  // Which tensor of its block it is, for activations and their gradients; for weights, gradients and states which piece
  // of them it is, counted from 1, of `pieces`; 0 for all of them.
  int tensor = 0;
  int pieces = 1;
  std::map<int, int> renewed = {};  // of a weight that is fetched piece by piece: the versions of those that are there
  std::map<int, Cut> cuts = {};     // by axis, which part of an activation or its gradient it is
  SummedParts summed_parts = {};    // of a gradient
  bool in_pieces = false;           // true: a weight's shard of a host, of pieces that are no neighbours
  bool owned = false;               // true: the owner's, of which the other ranks hold nothing
  Codec lost = Codec::kPlain;       // codec by which a weight has lost something; kPlain for an exact one
  bool operator==(const Symbol&) const = default;
};

// Holds one op of one rank that is about to run.
struct OpContext {
  const Op& op;
  int rank = 0, step = 0, data_rank = 0;  // data_rank is the place of the rank among those that divide samples
  int tensor_rank = 0;                    // its place among those that divide layers
  int gradient_rank = 0;                  // place among those that contribute to gradients
  std::vector<Symbol> reads = {};         // symbols of op.reads, in their order
  std::vector<std::string> wrong = {};    // what the checks have found wrong with the op
};

// Ranks that divide these contribute to the same gradients.
constexpr Divided kContributes = Divided::kSamples | Divided::kTokens;

constexpr int kNoOwner = -1;
constexpr int kSpoiled = -1;  // version of a value that was overwritten in part

// Answers what the model asks for. Borrows `expected`.
class Model {
 public:
  explicit Model(const Expectation& expected);
  const Expectation& expected() const { return expected_; }
  int num_blocks() const { return static_cast<int>(expected_.block_groups.size()); }
  // Returns the axis whose ranks divide these things, and the place of a rank on it.
  int axis_of(Divided what) const { return expected_.mesh.dividing(what); }
  int place_of(Divided what, int rank) const { return expected_.mesh.index(axis_of(what), rank); }
  int data_rank(int rank) const { return place_of(Divided::kSamples, rank); }
  int gradient_rank(int rank) const { return place_of(kContributes, rank); }
  bool runs(int rank, int block) const;     // tells whether the pipeline's stages give the block to the rank
  std::set<int> groups_of(int rank) const;  // returns the groups of the blocks that the rank runs
  const std::vector<spec::TensorId>& inputs_of(int block) const;    // returns the tensors that a block reads
  const std::vector<int>& readers_of(spec::TensorId tensor) const;  // returns the blocks that read a tensor
  // Returns the tensors of a block that have readers and get a gradient from them.
  std::vector<spec::TensorId> outputs_with_gradient(int block) const;
  spec::Split split_of(int block) const;  // returns how ranks share the block so far (Proof::blocks_split)
  int joint_axis(int block) const;        // returns the axis whose ranks run the block together, so far; or kNoAxis
  // Tells whether ranks of the tensor axis have a tensor of their own heads, so far (Proof::blocks_split).
  bool is_by_heads(spec::TensorId tensor) const;
  // Tells whether each of these ranks has all of a tensor, whatever its block cuts.
  bool is_whole(spec::TensorId tensor) const { return expected_.whole_tensors.contains(tensor); }
  // Returns by what ranks that divide something cut a tensor that the block reads or gives, so far (Proof); nothing
  // where each of them has all of it.
  std::optional<Dimension> cut_by(Divided what, int block, spec::TensorId tensor) const;
  // Returns which part of such a tensor the rank has, by axis.
  std::map<int, Cut> cuts_of(int block, spec::TensorId tensor, int rank) const;
  bool keeps_cache(int block) const;    // tells whether the pass keeps a cache of the block's keys and values
  bool keeps_routing(int block) const;  // tells whether passes with a graph take over what the router has chosen
  bool is_by_experts(int block) const;  // tells whether it works on the rows of all ranks with experts, so far
  // Returns the block that chooses experts for the rows that this one routes, runs or combines; -1 where ranks share
  // none, so far.
  int routed_by(int block) const;
  // Returns the gradient_rank() of all ranks that share experts with the rank.
  std::vector<int> sources(int rank) const;
  bool is_cut(int group) const;            // tells whether ranks of the tensor axis hold parts of the group
  bool is_copied(int group) const;         // tells whether several of these ranks hold the same part
  int copies_of(int group) const;          // how many do; 1 where it is not copied
  bool has_experts(int group) const;       // tells whether ranks of the expert axis hold parts of the group, so far
  int parts_of(int group) const;           // returns the number of parts that an axis cuts the group into
  int part_of(int group, int rank) const;  // returns the index of the part that the rank holds
  // Returns the first part that names contributions to the part of the experts that the rank holds: each has as many
  // as the tensor axis has ranks. Returns 0 for other groups.
  int first_contribution_of(int group, int rank) const;
  bool trains(int rank) const;  // tells whether the rank updates a group, which it runs a block with
  // Returns the place on the shard axis of the only rank that updates the group; kNoOwner where ranks have shards of
  // it.
  int owner_of(int group) const;
  // Tells whether the rank updates the group, or a part of it, if it runs a block with it.
  bool updates(int group, int rank) const;
  std::set<int> trained_groups() const;     // returns all groups that are not frozen
  int version(int group, int steps) const;  // returns the version of the group's weights after so many steps
  // Returns the ranks whose samples a backward of the rank adds to the group's gradient.
  std::vector<int> contributors(int group, int rank) const;
  // Returns the contributions that a gradient of the group must hold on the rank when kNorm or kStep reads it.
  std::set<Atom> contributions(int group, int rank) const;

 private:
  const Expectation& expected_;
  std::vector<std::vector<spec::TensorId>> inputs_;     // by block
  std::map<spec::TensorId, std::vector<int>> readers_;  // by tensor
  std::set<int> cut_;                                   // groups that the tensor axis cuts
};

// Returns "whole", or "place 1 of cp by heads", for each axis that cuts it.
std::string cuts_text(const Mesh& mesh, const std::map<int, Cut>& cuts);

// Returns the symbols that an op of one rank writes, in the order of op.writes. Adds to context.wrong what is wrong.
// REQUIRES an op that is no collective, message or release.
std::vector<Symbol> run_local(const Model& model, OpContext& context);

// Holds what the parameter servers of an axis know of one part of a parameter group. Their round r has the r-th push of
// each rank, and makes version r + 1 of the weights.
struct ServedPart {
  std::map<int, std::vector<Symbol>> pushes;  // by rank
  size_t checked_rounds = 0;
};
using PartOfGroup = std::pair<int, int>;  // (part, parts) of Op; (0, 1) for all of it
struct ServedGroup {
  std::map<PartOfGroup, ServedPart> parts;
  // By rank: the rounds of the parts that it has pulled, until it has them all.
  std::map<int, std::map<PartOfGroup, int>> pulled;
};

// Tells whether a version that lacks no push of another rank before step `oldest` may be used in a step.
bool within_staleness(const Proof& proof, int oldest, int step);
// Returns what is wrong with the rounds of a group's part that all members have pushed, and that have not been checked
// so far.
std::vector<std::string> check_rounds(const Model& model, ServedPart& served, int group,
                                      const std::vector<int>& members);

// Returns the symbols that a push writes, and adds it to the group.
std::vector<Symbol> run_push(const Model& model, OpContext& context, ServedGroup& served);
// Returns the symbols that a pull of a rank of `members` writes: weights of the round that the rank has pushed last,
// which are of no version until the last of their parts is pulled. REQUIRES that the other ranks have pushed as often,
// but for the staleness of the proof.
std::vector<Symbol> run_pull(const Model& model, OpContext& context, ServedGroup& served,
                             const std::vector<int>& members);

// Returns the symbols that each rank of a collective writes. `contexts` are those of all ranks of the axis, in its
// order. Adds what is wrong to the first of them.
std::vector<std::vector<Symbol>> run_collective(const Model& model, std::vector<OpContext>& contexts);

}  // namespace herd::program
