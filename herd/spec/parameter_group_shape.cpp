#include "herd/spec/parameter_group_shape.h"

#include <algorithm>

namespace herd::spec {

int64_t ParameterGroupShape::elements() const {
  int64_t sum = 0;
  for (const ParameterShape& parameter : parameters) sum += parameter.elements();
  return sum;
}

int64_t ParameterGroupShape::elements_of_rank(int tp) const {
  int64_t largest = 0;
  for (int place = 0; place < tp; ++place) {
    int64_t sum = 0;
    for (const ParameterShape& parameter : parameters) sum += parameter.elements_of_rank(tp, place);
    largest = std::max(largest, sum);
  }
  return largest;
}

int ParameterGroupShape::max_copies() const {
  int copies = 1;
  for (const ParameterShape& parameter : parameters) {
    for (const CutSection& section : parameter.sections) copies = std::max(copies, section.copies);
  }
  return copies;
}

}  // namespace herd::spec
