// Defines the parameters of one parameter group: those that are gathered, reduced and updated together. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/spec/parameter_shape.h"

namespace herd::spec {

// Holds parameters of one block, or a tied embedding alone, which the first and the last block read.
struct ParameterGroupShape {
  std::string name;  // "embedding", "h.3", "head", "wte"
  std::vector<ParameterShape> parameters;
  bool frozen = false;                     // true: not trained, so it has no gradient and no states (frozen.h)
  bool of_experts = false;                 // true: ranks of mesh.ep hold equal parts of it, each whole experts
  int64_t elements() const;                // returns the elements of whole parameters
  int64_t elements_of_rank(int tp) const;  // returns the most elements that one of `tp` ranks holds
  // Returns how many tensor-parallel ranks hold the same indices of a cut dim: the most of any parameter
  // (key_copies.h).
  int max_copies() const;
};

}  // namespace herd::spec
