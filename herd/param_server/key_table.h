// Names what a parameter server holds: each index is a tensor of some elements, fp32, of which servers hold pieces.
//   A tensor of 1024 elements and a row for each server is cut over all of them, in order, by their shares, between
//   rows: so the workers that push it keep all servers busy. A smaller one lies whole with the server in whose share
//   of all elements it begins. With equal shares, what servers hold differs by less than a row of each large tensor
//   and 1024 elements a server. A key with a codec is cut between blocks of the codec instead.
// Threads: const methods from any.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "herd/kernels/codec.h"
#include "herd/kernels/element_range.h"

namespace herd::param_server {

struct Key {
  int64_t elements = 0;
  int64_t row_elements = 1;  // length of a row, the unit of sparse pushes
  // Elements to which weight decay applies, ascending and disjoint; without a list, to all.
  std::optional<std::vector<kernels::ElementRange>> decay = {};
  // Form in which pushes of the key may be encoded (encoded_push.h). Without one they are fp32 alone.
  std::optional<kernels::CodecSettings> codec = {};
  std::vector<kernels::ElementRange> exact = {};  // in encoded pushes, too, fp32; ascending and disjoint
};

class KeyTable {
 public:
  // `shares` says how much each server holds, in proportion; empty = equal shares of any number of servers. Throws
  // kBadConfig for a key without elements, or whose rows do not divide it, for one with a codec and rows of several
  // elements, and for shares below 0 or all 0.
  explicit KeyTable(std::vector<Key> keys, const std::vector<double>& shares = {});
  KeyTable(std::initializer_list<Key> keys) : KeyTable(std::vector<Key>(keys)) {}

  int64_t size() const { return static_cast<int64_t>(keys_.size()); }
  int64_t total_elements() const { return offsets_.back(); }
  const Key& at(int64_t index) const;  // throws kBadConfig for an index that is not in the table
  uint64_t fingerprint() const { return fingerprint_; }
  std::string describe() const;  // returns "3 keys of 4096 elements, fingerprint 0x12ab"
  // Returns the elements of a key, counted from its start, that server `server` of `num_servers` holds; may be empty.
  // Throws kBadConfig where the table has shares of another number of servers.
  kernels::ElementRange piece(int64_t index, int server, int num_servers) const;

 private:
  int64_t cut(int64_t elements, int server, int num_servers) const;

  std::vector<Key> keys_;
  std::vector<double> share_ends_;  // of each server, rising to 1; empty = equal shares
  std::vector<int64_t> offsets_;    // by index, and the total
  uint64_t fingerprint_ = 0;
};

}  // namespace herd::param_server

namespace herd {
using param_server::Key, param_server::KeyTable;
}  // namespace herd
