// The symmetric memory that this rank holds, and where a group's members have theirs.
// Threads: RegionTable from any; RegionViews from one at a time.
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

// The regions that all members of one group map.
class RegionViews {
 public:
  RegionViews(std::shared_ptr<const RegionTable> table, std::vector<Rank> members);
  struct Place {
    uint64_t region;
    int64_t offset;
  };
  std::optional<Place> find(const void* begin, int64_t bytes);       // in this rank's own part
  std::byte* resolve(Rank member, uint64_t region, int64_t offset);  // nullptr: not mapped here

 private:
  struct View {
    uint64_t id;
    std::byte* own;
    int64_t bytes;
    std::vector<std::byte*> bases;  // by member of the group
    std::shared_ptr<transport::SharedRegion> memory;
  };
  void refresh();

  std::shared_ptr<const RegionTable> table_;
  std::vector<Rank> members_;
  uint64_t version_ = 0;
  std::vector<View> views_;
};

}  // namespace herd::comm
