#include "herd/param_server/key_table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "herd/base/error.h"
#include "herd/kernels/hash.h"

namespace herd::param_server {
namespace {

constexpr int64_t kUncutElements = 1024;  // a message of 4 KiB takes as long as one of half of it

}  // namespace

KeyTable::KeyTable(std::vector<Key> keys) : keys_(std::move(keys)) {
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
    offsets_.push_back(offsets_.back() + key.elements);
    words.insert(words.end(), {key.elements, key.row_elements, key.decay ? 0 : 1});
    if (!key.decay) continue;
    words.push_back(static_cast<int64_t>(key.decay->size()));
    for (const kernels::ElementRange& range : *key.decay) words.insert(words.end(), {range.begin, range.end});
  }
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

// Returns where the share of `server` begins in the key: 0 where it begins before, all elements where it begins later.
int64_t KeyTable::cut(int64_t index, int server, int num_servers) const {
  const Key& key = at(index);
  const int64_t share = total_elements() / num_servers, rest = total_elements() % num_servers;
  const int64_t global = server * share + server * rest / num_servers;
  const int64_t unit = key.elements <= kUncutElements ? key.elements : key.row_elements;
  const int64_t local = std::clamp<int64_t>(global - offsets_[static_cast<size_t>(index)], 0, key.elements);
  return local / unit * unit;
}

kernels::ElementRange KeyTable::piece(int64_t index, int server, int num_servers) const {
  const int64_t begin = server == 0 ? 0 : cut(index, server, num_servers);
  const int64_t end = server == num_servers - 1 ? at(index).elements : cut(index, server + 1, num_servers);
  return {begin, end};
}

}  // namespace herd::param_server
