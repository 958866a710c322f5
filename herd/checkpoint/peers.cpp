#include "herd/checkpoint/peers.h"

namespace herd {

StorePeers::StorePeers(Store& store, Rank rank, int size, std::string prefix, std::chrono::milliseconds timeout)
    : store_(store), rank_(rank), size_(size), prefix_(std::move(prefix)), timeout_(timeout) {}

std::string StorePeers::broadcast_from_root(const std::string& text) {
  const std::string key = prefix_ + "/" + std::to_string(exchange_++);
  if (rank_ == 0) {
    if (size_ > 1) store_.set(key, text);
    return text;
  }
  std::string result = store_.get(key, deadline());
  if (store_.add(key + "/read", 1) == size_ - 1) {  // the last reader clears up
    store_.erase(key);
    store_.erase(key + "/read");
  }
  return result;
}

std::vector<std::string> StorePeers::gather_to_root(const std::string& text) {
  const std::string key = prefix_ + "/" + std::to_string(exchange_++) + "/";
  if (rank_ != 0) {
    store_.set(key + std::to_string(rank_), text);
    return {};
  }
  std::vector<std::string> texts = {text};
  for (Rank peer = 1; peer < size_; ++peer) {
    texts.push_back(store_.get(key + std::to_string(peer), deadline()));
    store_.erase(key + std::to_string(peer));
  }
  return texts;
}

}  // namespace herd
