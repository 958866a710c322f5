// Defines what a value stands for while a program is verified.
#pragma once

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "herd/program/verify_program.h"

namespace herd::program {

// Of a gradient, an activation and the like: (block, micro-batch, data rank, part). Of a norm: (group, shard, shards,
// part). The part is the place on the tensor axis of what is one of its ranks' alone, else 0.
using Atom = std::tuple<int, int, int, int>;

struct Symbol {
  ValueKind kind = ValueKind::kActivation;
  int index = 0;    // group of weights, gradients, states
  int version = 0;  // of weights, states and caches; the step of all others
  int shard = 0, shards = 1;
  bool partial = false;  // of activations and their gradients
  std::set<Atom> atoms = {};
  bool operator==(const Symbol&) const = default;
};

// One op about to run: what it read, in the order of op.reads. finds() collects what is wrong with it.
struct OpContext {
  const Op& op;
  int rank = 0, step = 0, data_rank = 0;
  int tensor_rank = 0;  // place on the tensor axis
  std::vector<Symbol> reads = {};
  std::vector<std::string> wrong = {};
};

// What the model asks for, indexed for the checks.
class Model {
 public:
  explicit Model(const Expectation& expected);
  const Expectation& expected() const { return expected_; }
  int num_blocks() const { return static_cast<int>(expected_.block_groups.size()); }
  int data_rank(int rank) const { return expected_.mesh.index(expected_.data_axis, rank); }
  bool runs(int rank, int block) const;                      // where the pipeline's stages say so
  std::set<int> groups_of(int rank) const;                   // of the blocks that it runs
  const std::vector<int>& inputs_of(int block) const;        // activations
  const std::vector<int>& readers_of(int activation) const;  // blocks
  spec::Split split_of(int block) const;
  bool keeps_cache(int block) const;                        // of keys and values
  bool is_cut(int group) const;                             // among ranks of the tensor axis
  bool is_copied(int group) const;                          // and some of these hold the same part
  int parts_of(int group) const;                            // that it is cut into
  int part_of(int group, int rank) const;                   // which of them the rank holds
  bool trains(int rank) const;                              // any of them
  std::set<int> trained_groups() const;                     // of all stages
  int version(int group, int steps) const;                  // of its weights, after so many
  std::set<Atom> contributions(int group, int rank) const;  // that a step of this group needs on this rank

 private:
  const Expectation& expected_;
  std::vector<std::vector<int>> inputs_, readers_;  // by block, by activation
  std::set<int> cut_;                               // groups
};

// Symbols that an op of one rank writes, in the order of op.writes. Not for collectives, messages and releases.
std::vector<Symbol> run_local(const Model& model, OpContext& context);

// Collectives: `contexts` of all ranks of the axis, in its order. Returns what each writes.
std::vector<std::vector<Symbol>> run_collective(const Mesh& mesh, std::vector<OpContext>& contexts);

}  // namespace herd::program
