// Shows what a layer keeps for backward, tensor by tensor: the terms of Korthikanti et al. 2022 beside what herd keeps.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/spec/kept_tensors.h"
#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"

namespace herd::planner {

struct LayerTensors {
  struct Row {
    std::string name;
    std::string equation = {};  // of the paper; empty where it has no such tensor
    double published = 0;       // bytes of a rank in 16 bit, as the paper counts them
    double kept = 0;            // bytes of a rank that herd keeps
  };
  std::string title;
  std::string symbols;   // says what s, b, h, a and t are
  std::string equation;  // equation of all terms; empty where the paper is about other layers
  std::vector<Row> rows;
  double published() const;  // returns the sum of the paper's terms
  double kept() const;       // returns the bytes of one layer in herd's tables
};

// `name` is that of the run or its model. Takes techniques as the run file states them: tensor and sequence parallel,
// recompute. Throws as spec::kept_tensors().
LayerTensors layer_tensors_of(const std::string& name, const spec::RunFile& run, const spec::Layout& layout);

std::string layer_text(const LayerTensors& layer);
std::string layer_svg(const LayerTensors& layer);

}  // namespace herd::planner
