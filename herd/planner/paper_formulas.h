// PaperFormulas holds what the equations of the literature say of a run, beside what herd predicts of it: model states
// in every form that is in use and under every ZeRO stage, activations of one layer by technique, traffic, arithmetic.
// A row that this version of herd can't train says so. Sources stand with the equations, in herd/spec. Threads: pure.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "herd/spec/activations.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_states.h"

namespace herd::planner {

// Bytes that training keeps per parameter, by part; a part that a form lacks is not listed.
struct StateForm {
  std::string name;
  std::vector<std::pair<std::string, double>> parts = {};  // "weight" 2, "gradient" 2, "master" 4, ..
  std::string keys = {};                                   // of the run file that train so; empty = none yet
  spec::StateBytes bytes() const;
};

struct StateRow {
  StateForm form;
  double whole = 0;                 // bytes of the model
  std::array<double, 4> of_rank{};  // under ZeRO-0..3
};

struct LayerRow {
  int tensor_parallel = 1;
  bool sequence_parallel = false;
  spec::Recompute recompute = spec::Recompute::kNone;
  double bytes = 0;
  std::string not_built = {};  // what this version can't run of it; empty = herd train takes it
};

struct TrafficRow {
  std::string name;
  double elements = 0;         // that a rank sends in a step
  std::string not_built = {};  // as of a LayerRow
};

struct CheckpointRow {
  int64_t every = 1;
  spec::Checkpoints layers;
  double bytes = 0;  // of their inputs, and of the activations of the segment that is computed again
};

struct PaperFormulas {
  double parameters = 0;          // of the model
  double parameters_of_rank = 0;  // of its tensor-parallel part of its pipeline stage
  int shards = 1, replicas = 1;   // ranks that share the states, and that keep a copy of each share
  std::vector<StateRow> states;   // the run's own first
  std::vector<TrafficRow> traffic;
  double zero3_cross_host = 0, zero_plus_plus_cross_host = 0;  // bytes, 16-bit weights
  double decoder_parameters = 0;                               // V*d + L(..); 0 = another kind
  // Of transformer layers of gpt and bert, whose feed-forward layer is 4 wide: empty for others.
  spec::LayerShape layer;
  std::vector<LayerRow> layers;
  std::vector<CheckpointRow> checkpoints;
  double full_recompute = 0;  // FLOP of a step with full recompute, over those without
};

PaperFormulas paper_formulas_of(const spec::RunFile& run, const spec::Layout& layout, double parameters);

}  // namespace herd::planner
