// Holds the symmetric memory of this rank, and finds where a group's members have theirs.
// Threads: RegionTable and MappedRegions from any; RegionViews from the group's calling thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "herd/base/ids.h"
#include "herd/transport/transport.h"

namespace herd::comm {

struct SymmetricRegion {
  uint64_t id = 0;  // the same on every member
  std::shared_ptr<transport::SharedRegion> memory;
  std::vector<Rank> members;  // transport ranks
  int self = 0;               // index in members
};

class RegionTable {
 public:
  void add(SymmetricRegion region);
  void remove(uint64_t id);
  std::vector<SymmetricRegion> all() const;
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  std::vector<SymmetricRegion> regions_;
  std::atomic<uint64_t> version_{1};
};

// Holds the regions that all members of one group map, copied from the table at one moment. It is constant. An
// operation holds the one that it was prepared with, so the addresses that it resolves stay mapped.
class MappedRegions {
 public:
  MappedRegions(const RegionTable& table, const std::vector<Rank>& members);
  struct Place {
    uint64_t region;
    int64_t offset;
  };
  std::optional<Place> find(const void* begin, int64_t bytes) const;       // finds a place in this rank's own part
  std::byte* resolve(Rank member, uint64_t region, int64_t offset) const;  // returns nullptr for an unknown region
  uint64_t version() const { return version_; }

 private:
  struct View {
    uint64_t id;
    std::byte* own;
    int64_t bytes;
    std::vector<std::byte*> bases;  // by member of the group
    std::shared_ptr<transport::SharedRegion> memory;
  };
  uint64_t version_;
  std::vector<View> views_;
};

// Caches the newest MappedRegions of one group.
class RegionViews {
 public:
  RegionViews(std::shared_ptr<const RegionTable> table, std::vector<Rank> members);
  const std::shared_ptr<const MappedRegions>& newest();  // valid until the next call
  // Returns a new one, also where newest() is up to date: a peer may have opened a region since. Threads: any.
  std::shared_ptr<const MappedRegions> rebuilt() const;

 private:
  std::shared_ptr<const RegionTable> table_;
  std::vector<Rank> members_;
  std::shared_ptr<const MappedRegions> newest_;
};

}  // namespace herd::comm
