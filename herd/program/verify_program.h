// Proves the programs of all ranks by running them on symbols for two steps, in one legal order (lanes in order,
// derived hazards between them, collectives when all ranks of the axis have come). What is expected follows from the
// model and the mesh, never from the programs under test.
//   weight      a version; every use in step t must see version t, and t+1 at its end; of a frozen group 0, always
//   gradient    a set of contributions (block, micro-batch, data rank); a step must see each expected one exactly once
//   activation  (producer, micro-batch, data rank, step), whole, a shard or partial along the tensor axis, as the
//                blocks that make and read it need; its gradient the set of its readers
//                A shard may lie in the slot of its whole: writing one spoils the other, but for a gather in place
//   factor      the groups whose norms it has seen, each with all contributions
//   cache       (block, data rank), and how many passes it has seen: a pass that continues caches must read version t
//   of
//                its block's in step t and leave t+1
// It finds: a contribution missing or doubled; a stale or future weight; a value read that holds nothing or another's;
// a value overwritten or released unread, or never released; a slot taken while in use; collectives of an axis that
// differ between ranks; sums left out, made twice or over other ranks, and shards taken for wholes; messages nobody
// receives (a send completes with its receive); deadlock; ops that do not fit their kind. Threads: pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "herd/program/program.h"
#include "herd/spec/block_shape.h"

namespace herd::program {

// How far the rewrites have come.
struct Proof {
  bool summed = true;         // gradients hold the contributions of all data ranks; if not, of their own rank,
  int summed_over = kNoAxis;  // or of all ranks along this axis
  bool staged = false;        // each rank runs the blocks of its own stage, else of all
  bool stages_summed = true;  // gradients hold the contributions of all stages; if not, of their own
  bool rows_summed = true;    // and those of all shards of rows
  bool copies_summed = true;  // and those of all ranks that hold copies of a part
  bool split = true;          // ranks of the tensor axis share blocks as the model says; if not, each does all of it
  int shard_axis = kNoAxis;   // over which persistent shards are cut
  bool clipped = true;        // steps read a factor that has seen every group
  bool released = true;       // nothing but persistent values is left at the end of a step
};

// What the model and the layout ask for.
struct Expectation {
  std::vector<std::vector<int>> block_groups;
  std::vector<bool> backward_without_weights = {};  // per block; empty = every backward reads its block's weights
  std::vector<std::vector<int>> block_inputs = {};  // per block: activations it reads; empty = that before it
  std::vector<spec::Split> block_splits = {};       // per block; empty = none is shared
  std::set<int> frozen = {};                        // groups whose weights no step may change: they have no gradient
  int micro_batches = 1;
  bool trains = true;  // else losses alone are wanted: no version changes
  Mesh mesh = {};
  int data_axis = kNoAxis;           // axis of `mesh` whose ranks work on samples of their own
  int tensor_axis = kNoAxis;         // axis of `mesh` whose ranks share the work on each sample
  std::set<int> copied = {};         // groups whose parts are the same on all ranks of copies_axis
  int copies_axis = kNoAxis;         // axis of `mesh` whose ranks hold copies of the parts of `copied` groups
  int stage_axis = kNoAxis;          // of the pipeline's stages
  std::vector<int> block_rank = {};  // which rank along it runs each block
  // Of passes that continue texts: blocks that keep keys and values in caches; empty = no such pass. Caches that it
  // continues hold those of the tokens before, of version t in step t; else it begins them.
  std::vector<bool> block_caches = {};
  bool continues = false;
  Proof proof = {};
};

struct Finding {
  int rank = 0;
  int op = -1;  // index into ops; -1 = the program as a whole
  std::string text;
};

// At most 20 findings; after the first bad symbol the rest may follow from it.
std::vector<Finding> verify(const std::vector<Program>& programs, const Expectation& expected);

// "rank 1, op 14 reduce of g3 on dp ...", a line each.
std::string to_string(const std::vector<Finding>& findings, const std::vector<Program>& programs);

}  // namespace herd::program
