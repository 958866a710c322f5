#include "herd/spec/parameter_group_shape.h"

#include <algorithm>

namespace herd::spec {

int64_t ParameterGroupShape::elements() const {
  int64_t sum = 0;
  for (const ParameterShape& parameter : parameters) sum += parameter.elements();
  return sum;
}

int64_t ParameterGroupShape::elements_of_rank(int tp) const {
  int64_t most = 0;
  for (int place = 0; place < tp; ++place) {
    int64_t sum = 0;
    for (const ParameterShape& parameter : parameters) sum += parameter.elements_of_rank(tp, place);
    most = std::max(most, sum);
  }
  return most;
}

int ParameterGroupShape::max_copies() const {
  int most = 1;
  for (const ParameterShape& parameter : parameters) {
    for (const CutSection& section : parameter.sections) most = std::max(most, section.copies);
  }
  return most;
}

}  // namespace herd::spec
