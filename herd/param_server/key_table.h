// Names what a parameter server holds: each index is a tensor of some elements, fp32. Keys lie one after the other in
// one range of elements, which is cut over k servers into shares of equal size. A large tensor may be cut; its rows
// are not, nor tensors of at most 1024 elements.
//   server j of k holds [cut(j), cut(j + 1)); cut(j) is j/k of all elements, rounded down to a place that may be cut,
//   so shares differ by less than twice the largest unit (a row, or a tensor of at most 1024 elements)
// Threads: const methods from any.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "herd/kernels/element_range.h"

namespace herd::param_server {

struct Key {
  int64_t elements = 0;
  int64_t row_elements = 1;  // length of a row, the unit of sparse pushes
  // Elements to which weight decay applies, ascending and disjoint; without a list, to all.
  std::optional<std::vector<kernels::ElementRange>> decay = {};
};

class KeyTable {
 public:
  // Throws kBadConfig for a key without elements, or whose rows do not divide it.
  explicit KeyTable(std::vector<Key> keys);
  KeyTable(std::initializer_list<Key> keys) : KeyTable(std::vector<Key>(keys)) {}

  int64_t size() const { return static_cast<int64_t>(keys_.size()); }
  int64_t total_elements() const { return offsets_.back(); }
  const Key& at(int64_t index) const;  // throws kBadConfig for an index that is not in the table
  uint64_t fingerprint() const { return fingerprint_; }
  std::string describe() const;  // returns "3 keys of 4096 elements, fingerprint 0x12ab"
  // Returns the elements of a key, counted from its start, that server `server` of `num_servers` holds; may be empty.
  kernels::ElementRange piece(int64_t index, int server, int num_servers) const;

 private:
  int64_t cut(int64_t index, int server, int num_servers) const;

  std::vector<Key> keys_;
  std::vector<int64_t> offsets_;  // by index, and the total
  uint64_t fingerprint_ = 0;
};

}  // namespace herd::param_server

namespace herd {
using param_server::Key, param_server::KeyTable;
}  // namespace herd
