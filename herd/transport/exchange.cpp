#include "herd/transport/exchange.h"

#include <utility>

#include "herd/base/error.h"

namespace herd::transport {
namespace {

// Exchanges texts as keys of a store.
class StoreExchange final : public Exchange {
 public:
  StoreExchange(Store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}

  std::vector<std::string> all_gather(const std::string& key, const std::vector<Rank>& members, Rank rank,
                                      const std::string& text, SteadyTime deadline) override {
    const std::string path = prefix_ + key + "/";
    store_.set(path + std::to_string(rank), text);
    std::vector<std::string> texts;
    for (Rank member : members) texts.push_back(member == rank ? text : get(path, member, deadline));
    return texts;
  }

 private:
  std::string get(const std::string& path, Rank member, SteadyTime deadline) {
    try {
      return store_.get(path + std::to_string(member), deadline);
    } catch (const Error& error) {
      throw Error(error.code(), "rank " + std::to_string(member) + " never arrived: " + error.message());
    }
  }

  Store& store_;
  std::string prefix_;
};

// Exchanges texts as parcels of a courier.
class CourierExchange final : public Exchange {
 public:
  explicit CourierExchange(std::unique_ptr<Courier> courier) : courier_(std::move(courier)) {}

  std::vector<std::string> all_gather(const std::string& key, const std::vector<Rank>& members, Rank rank,
                                      const std::string& text, SteadyTime deadline) override {
    for (Rank member : members) {
      if (member != rank) courier_->send(member, key, {.text = text});
    }
    std::vector<std::string> texts;
    for (Rank member : members) texts.push_back(member == rank ? text : courier_->receive(member, key, deadline).text);
    return texts;
  }

 private:
  std::unique_ptr<Courier> courier_;
};

}  // namespace

std::unique_ptr<Exchange> store_exchange(Store& store, const std::string& prefix) {
  return std::make_unique<StoreExchange>(store, prefix);
}

std::unique_ptr<Exchange> courier_exchange(std::unique_ptr<Courier> courier) {
  return std::make_unique<CourierExchange>(std::move(courier));
}

}  // namespace herd::transport
