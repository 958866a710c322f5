// Lets herd's ranks meet in the store of a PyTorch process group. Threads: as the store's, any.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "herd/base/error.h"
#include "herd/base/store.h"

namespace herd::pytorch {

inline std::string words_of(const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  return torchs != nullptr ? torchs->what_without_backtrace() : error.what();
}

class C10dStore final : public Store {
 private:
  template <typename Call>
  auto run(const Call& call) {
    try {
      return call();
    } catch (const std::exception& error) {
      throw Error(Code::kPeerLost, "PyTorch's store does not answer: " + words_of(error));
    }
  }

 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    run([&] { store_->set(key, value); });
  }
  std::string get(const std::string& key, SteadyTime deadline) override {
    using std::chrono::milliseconds;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    try {
      store_->wait({key}, std::max(left, milliseconds(1)));
      return store_->get_to_str(key);
    } catch (const std::exception& error) {
      const bool late = std::chrono::steady_clock::now() >= deadline;
      throw Error(late ? Code::kTimeout : Code::kPeerLost,
                  "key \"" + key + "\" of PyTorch's store: " + words_of(error));
    }
  }
  int64_t add(const std::string& key, int64_t delta) override {
    return run([&] { return store_->add(key, delta); });
  }
  void erase(const std::string& key) override {
    run([&] { store_->deleteKey(key); });
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace herd::pytorch
