#include "herd/comm/region_table.h"

#include <algorithm>
#include <utility>

namespace herd::comm {

void RegionTable::add(SymmetricRegion region) {
  std::lock_guard lock(mutex_);
  regions_.push_back(std::move(region));
  version_.fetch_add(1, std::memory_order_release);
}

void RegionTable::remove(uint64_t id) {
  std::lock_guard lock(mutex_);
  std::erase_if(regions_, [&](const SymmetricRegion& region) { return region.id == id; });
  version_.fetch_add(1, std::memory_order_release);
}

std::vector<SymmetricRegion> RegionTable::all() const {
  std::lock_guard lock(mutex_);
  return regions_;
}

MappedRegions::MappedRegions(const RegionTable& table, const std::vector<Rank>& members) : version_(table.version()) {
  for (const SymmetricRegion& region : table.all()) {
    View view{region.id, region.memory->of(region.self), region.memory->bytes(), {}, region.memory};
    for (Rank member : members) {
      const auto found = std::find(region.members.begin(), region.members.end(), member);
      if (found == region.members.end()) break;
      view.bases.push_back(region.memory->of(static_cast<int>(found - region.members.begin())));
    }
    if (view.bases.size() == members.size()) views_.push_back(std::move(view));
  }
}

std::optional<MappedRegions::Place> MappedRegions::find(const void* begin, int64_t bytes) const {
  const auto* first = static_cast<const std::byte*>(begin);
  for (const View& view : views_) {
    if (first >= view.own && first + bytes <= view.own + view.bytes) return Place{view.id, first - view.own};
  }
  return std::nullopt;
}

std::byte* MappedRegions::resolve(Rank member, uint64_t region, int64_t offset) const {
  for (const View& view : views_) {
    if (view.id == region) return view.bases[static_cast<size_t>(member)] + offset;
  }
  return nullptr;
}

RegionViews::RegionViews(std::shared_ptr<const RegionTable> table, std::vector<Rank> members)
    : table_(std::move(table)), members_(std::move(members)) {}

const std::shared_ptr<const MappedRegions>& RegionViews::newest() {
  if (newest_ == nullptr || newest_->version() != table_->version()) newest_ = rebuilt();
  return newest_;
}

std::shared_ptr<const MappedRegions> RegionViews::rebuilt() const {
  return std::make_shared<const MappedRegions>(*table_, members_);
}

}  // namespace herd::comm
