// What a value stands for while a program is verified.
#pragma once

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "herd/program/verify.h"

namespace herd::program {

// Of a gradient: (block, micro-batch, data rank). Of a norm or factor: (group, shard, shards). Of an activation and the
// like: (block, micro-batch, data rank).
using Atom = std::tuple<int, int, int>;

struct Symbol {
  ValueKind kind = ValueKind::kActivation;
  int index = 0;    // group of weights, gradients, states
  int version = 0;  // of weights and states; the step of all others
  int shard = 0, shards = 1;
  std::set<Atom> atoms = {};
  bool operator==(const Symbol&) const = default;
};

// One op about to run: what it read, in the order of op.reads. finds() collects what is wrong with it.
struct OpContext {
  const Op& op;
  int rank = 0, step = 0, data_rank = 0;
  std::vector<Symbol> reads = {};
  std::vector<std::string> wrong = {};
};

// What the model asks for, indexed for the checks.
class Model {
 public:
  explicit Model(const Expectation& expected);
  const Expectation& expected() const { return expected_; }
  int num_blocks() const { return static_cast<int>(expected_.block_groups.size()); }
  int data_rank(int rank) const { return expected_.mesh.index(expected_.data, rank); }
  bool runs(int rank, int block) const;                     // where the pipeline's stages say so
  std::set<int> groups_of(int rank) const;                  // of the blocks that it runs
  bool trains(int rank) const;                              // any of them
  std::set<int> trained_groups() const;                     // of all stages
  int version(int group, int steps) const;                  // of its weights, after so many
  std::set<Atom> contributions(int group, int rank) const;  // that a step of this group needs on this rank

 private:
  const Expectation& expected_;
};

// Symbols that an op of one rank writes, in the order of op.writes. Not for collectives, messages and releases.
std::vector<Symbol> run_local(const Model& model, OpContext& context);

// Collectives: `contexts` of all ranks of the axis, in its order. Returns what each writes.
std::vector<std::vector<Symbol>> run_collective(std::vector<OpContext>& contexts);

}  // namespace herd::program
