#include "herd/param_server/key_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <utility>

#include "herd/base/error.h"
#include "herd/kernels/hash.h"

namespace herd::param_server {
namespace {

constexpr int64_t kLeastPiece = 1024;  // elements: a message of 4 KiB takes as long as one of half of it

}  // namespace

KeyTable::KeyTable(std::vector<Key> keys, const std::vector<double>& shares) : keys_(std::move(keys)) {
  offsets_.reserve(keys_.size() + 1);
  offsets_.push_back(0);
  std::vector<int64_t> words;
  for (const Key& key : keys_) {
    if (key.elements < 1 || key.row_elements < 1 || key.elements % key.row_elements != 0) {
      throw Error(Code::kBadConfig, "key " + std::to_string(offsets_.size() - 1) + " has " +
                                        std::to_string(key.elements) + " elements in rows of " +
                                        std::to_string(key.row_elements) +
                                        "\n  fix: at least one element, and whole rows");
    }
    if (key.codec && key.row_elements != 1) {
      throw Error(Code::kBadConfig, "key " + std::to_string(offsets_.size() - 1) + " has rows of " +
                                        std::to_string(key.row_elements) +
                                        " elements and a codec, which encodes whole keys\n  fix: one of the two");
    }
    int64_t end = 0;  // of the exact elements before a range
    for (const kernels::ElementRange& range : key.exact) {
      if (range.begin < end || range.end < range.begin || range.end > key.elements) {
        throw Error(Code::kBadConfig, "key " + std::to_string(offsets_.size() - 1) + " has exact elements [" +
                                          std::to_string(range.begin) + ", " + std::to_string(range.end) + ") of " +
                                          std::to_string(key.elements) + ", after those before " + std::to_string(end) +
                                          "\n  fix: ranges inside the key, ascending, none over another");
      }
      end = range.end;
    }
    if (key.codec && key.codec->block < 1) {
      throw Error(Code::kBadConfig, "key " + std::to_string(offsets_.size() - 1) + " has a codec with blocks of " +
                                        std::to_string(key.codec->block) + " elements\n  fix: 1 or more");
    }
    offsets_.push_back(offsets_.back() + key.elements);
    words.insert(words.end(), {key.elements, key.row_elements, key.decay ? 0 : 1});
    const auto add_ranges = [&](const std::vector<kernels::ElementRange>& ranges) {
      words.push_back(static_cast<int64_t>(ranges.size()));
      for (const kernels::ElementRange& range : ranges) words.insert(words.end(), {range.begin, range.end});
    };
    if (key.decay) add_ranges(*key.decay);
    if (!key.codec) continue;
    words.insert(words.end(),
                 {static_cast<int64_t>(key.codec->kind), key.codec->block, std::bit_cast<int64_t>(key.codec->ratio)});
    add_ranges(key.exact);
  }
  double total = 0;
  for (const double share : shares) {
    if (!(share >= 0) || !std::isfinite(share)) {
      throw Error(Code::kBadConfig, "a server's share is " + std::to_string(share) + "\n  fix: 0 or more");
    }
    total += share;
    share_ends_.push_back(total);
    words.push_back(std::bit_cast<int64_t>(share));
  }
  if (!shares.empty() && total == 0) throw Error(Code::kBadConfig, "the shares of all servers are 0");
  for (double& end : share_ends_) end /= total;
  fingerprint_ = kernels::hash(words.data(), static_cast<int64_t>(words.size() * sizeof(int64_t)));
}

const Key& KeyTable::at(int64_t index) const {
  if (index >= 0 && index < size()) return keys_[static_cast<size_t>(index)];
  throw Error(Code::kBadConfig,
              "key " + std::to_string(index) + " is unknown: the table has keys 0 to " + std::to_string(size() - 1));
}

std::string KeyTable::describe() const {
  char hexadecimal[24];
  std::snprintf(hexadecimal, sizeof hexadecimal, "0x%016llx", static_cast<unsigned long long>(fingerprint_));
  return std::to_string(size()) + " keys of " + std::to_string(total_elements()) + " elements, fingerprint " +
         hexadecimal;
}

// Returns where the share of `server` begins among so many elements.
int64_t KeyTable::cut(int64_t elements, int server, int num_servers) const {
  if (server == 0) return 0;
  if (server == num_servers) return elements;
  if (share_ends_.empty()) {
    return server * (elements / num_servers) + server * (elements % num_servers) / num_servers;
  }
  return static_cast<int64_t>(static_cast<double>(elements) * share_ends_[static_cast<size_t>(server) - 1]);
}

kernels::ElementRange KeyTable::piece(int64_t index, int server, int num_servers) const {
  if (!share_ends_.empty() && share_ends_.size() != static_cast<size_t>(num_servers)) {
    throw Error(Code::kBadConfig, "the key table has the shares of " + std::to_string(share_ends_.size()) +
                                      " servers, but there are " + std::to_string(num_servers));
  }
  const Key& key = at(index);
  const int64_t row = key.codec ? key.codec->block : key.row_elements;  // the last block may be shorter
  const int64_t rows = (key.elements + row - 1) / row;
  if (key.elements >= kLeastPiece * num_servers && rows >= num_servers) {
    return {std::min(key.elements, cut(rows, server, num_servers) * row),
            std::min(key.elements, cut(rows, server + 1, num_servers) * row)};
  }
  const int64_t begin = offsets_[static_cast<size_t>(index)];
  const bool is_held =
      begin >= cut(total_elements(), server, num_servers) && begin < cut(total_elements(), server + 1, num_servers);
  return {0, is_held ? key.elements : 0};
}

}  // namespace herd::param_server
