#include "herd/spec/parameter_shape.h"

namespace herd::spec {
namespace {

// Returns the elements of one index of cut_dim.
int64_t elements_of_index(const ParameterShape& parameter) {
  int64_t product = 1;
  for (size_t d = 0; d < parameter.sizes.size(); ++d)
    product *= static_cast<int>(d) == parameter.cut_dim ? 1 : parameter.sizes[d];
  return product;
}

std::vector<CutSection> sections_of(const ParameterShape& parameter) {
  if (!parameter.sections.empty()) return parameter.sections;
  return {{parameter.sizes[static_cast<size_t>(parameter.cut_dim)]}};
}

}  // namespace

int64_t ParameterShape::elements() const {
  if (cut_dim < 0) return elements_of_index(*this);
  int64_t indices = 0;
  for (const CutSection& section : sections_of(*this)) indices += section.size;
  return elements_of_index(*this) * indices;
}

int64_t ParameterShape::elements_of_rank(int tp, int place) const {
  if (cut_dim < 0) return elements();
  int64_t indices = 0;
  for (const IndexSpan& span : cut_spans(*this, tp, place)) indices += span.end - span.begin;
  return elements_of_index(*this) * indices;
}

std::vector<IndexSpan> cut_spans(const ParameterShape& parameter, int tp, int place) {
  if (parameter.cut_dim < 0) return {};
  std::vector<IndexSpan> out;
  int64_t begin = parameter.sections_begin;
  for (const auto& [size, copies] : sections_of(parameter)) {
    const int parts = tp / copies, part = place / copies;
    out.push_back({begin + size * part / parts, begin + size * (part + 1) / parts});
    begin += size;
  }
  return out;
}

}  // namespace herd::spec
