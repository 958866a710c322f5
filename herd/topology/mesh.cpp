#include "herd/topology/mesh.h"

#include <algorithm>

namespace herd {
namespace {

int place_of(const Axis& axis, int rank) {
  int place = 0;
  for (const Factor& factor : axis.factors) place = place * factor.size + rank / factor.stride % factor.size;
  return place;
}

}  // namespace

int Axis::places() const {
  int count = 1;
  for (const Factor& factor : factors) count *= factor.size;
  return count;
}

int Axis::size() const { return members.empty() ? places() : static_cast<int>(members.size()); }

int Mesh::find(std::string_view name) const {
  const auto at = std::find_if(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.name == name; });
  return at == axes.end() ? kNoAxis : static_cast<int>(at - axes.begin());
}

int Mesh::dividing(Divided what) const {
  Divided all = Divided::kNothing;
  for (const Axis& axis : axes) all = all | axis.divides;
  const Divided wanted = what & all;
  if (wanted == Divided::kNothing) return kNoAxis;
  const auto at = std::ranges::find(axes, wanted, &Axis::divides);
  return at == axes.end() ? kNoAxis : static_cast<int>(at - axes.begin());
}

int Mesh::size(int axis) const { return axis == kNoAxis ? 1 : axes.at(static_cast<size_t>(axis)).size(); }

int Mesh::index(int axis, int rank) const {
  if (axis == kNoAxis) return 0;
  const Axis& along = axes.at(static_cast<size_t>(axis));
  const int place = place_of(along, rank);
  if (along.members.empty()) return place;
  const auto at = std::find(along.members.begin(), along.members.end(), place);
  return at == along.members.end() ? -1 : static_cast<int>(at - along.members.begin());
}

int Mesh::peer(int axis, int rank, int index) const {
  if (axis == kNoAxis) return rank;
  const Axis& along = axes.at(static_cast<size_t>(axis));
  int place = along.members.empty() ? index : along.members.at(static_cast<size_t>(index));
  for (auto factor = along.factors.rbegin(); factor != along.factors.rend(); ++factor) {
    const int here = rank / factor->stride % factor->size, there = place % factor->size;
    rank += (there - here) * factor->stride;
    place /= factor->size;
  }
  return rank;
}

std::vector<int> Mesh::ranks(int axis, int rank) const {
  std::vector<int> out;
  for (int index = 0; index < size(axis); ++index) out.push_back(peer(axis, rank, index));
  return out;
}

Axis product(const Axis& outer, const Axis& inner) {
  Axis out{outer.name + "*" + inner.name, outer.factors};
  out.factors.insert(out.factors.end(), inner.factors.begin(), inner.factors.end());
  return out;
}

Axis restricted(const Axis& axis, std::vector<int> members) {
  Axis out = axis;
  out.divides = Divided::kNothing;
  out.name += "{";
  for (size_t i = 0; i < members.size(); ++i) out.name += (i > 0 ? "," : "") + std::to_string(members[i]);
  out.name += "}";
  out.members = std::move(members);
  return out;
}

}  // namespace herd
