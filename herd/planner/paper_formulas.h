// Computes what the equations of the literature say of a run, beside herd's own prediction. They cover model states in
// every combination of number formats in use and under every ZeRO stage. They also cover activations of one layer by
// technique, traffic and arithmetic. A row that this version of herd can't train says so. Sources stand with the
// equations, in herd/spec. Threads: pure.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "herd/spec/activations.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_states.h"

namespace herd::planner {

// Holds the bytes that training keeps per parameter, by part; it leaves out parts that a recipe lacks.
struct PrecisionRecipe {
  std::string name;
  std::vector<std::pair<std::string, double>> parts = {};  // "weight" 2, "gradient" 2, "master" 4, ..
  std::string keys = {};  // keys of the run file for such a training; empty = herd can't train so
  spec::StateBytes bytes() const;
};

struct StateRow {
  PrecisionRecipe recipe;
  double whole = 0;                 // bytes of the whole model
  std::array<double, 4> of_rank{};  // bytes of a rank under ZeRO-0..3
};

struct LayerRow {
  int tensor_parallel = 1;
  bool sequence_parallel = false;
  spec::RecomputeKind recompute = spec::RecomputeKind::kNone;
  double bytes = 0;
  std::string why_not_built = {};  // what this version can't run; empty = herd train takes it
};

struct TrafficRow {
  std::string name;
  double elements = 0;             // elements that a rank sends in a step
  std::string why_not_built = {};  // what this version can't run; empty = herd train takes it
};

struct CheckpointRow {
  int64_t every = 1;  // K of activation checkpointing: the input of every K-th layer is kept
  spec::RecomputeSegments checkpoints;
  double bytes = 0;  // bytes of the layers' inputs, and of activations of the segment that is computed again
};

struct PaperFormulas {
  double parameters = 0;          // parameters of the model
  double parameters_of_rank = 0;  // parameters / (tp * pp): a rank's tensor-parallel part of its pipeline stage
  int shards = 1, replicas = 1;   // ranks that share the states, and that keep a copy of each share
  std::vector<StateRow> states;   // states under each recipe, the run's own first
  std::vector<TrafficRow> traffic;
  double zero3_cross_host = 0, zero_plus_plus_cross_host = 0;  // bytes, 16-bit weights
  double decoder_parameters = 0;                               // equation of spec/compute.h; 0 = another kind of model
  // These hold for transformer layers of gpt and bert, whose feed-forward layer is 4 * width wide; else they are
  // empty.
  spec::LayerShape layer;
  std::vector<LayerRow> layers;
  std::vector<CheckpointRow> checkpoints;
  double full_recompute_flop_ratio = 0;  // FLOP of a step with full recompute over those without
};

PaperFormulas paper_formulas_of(const spec::RunFile& run, const spec::Layout& layout, double parameters);

}  // namespace herd::planner
