#include "herd/nn/host_steps.h"

#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace herd::nn {
namespace {

using Kind = HostStep::Kind;
// What a message holds: (source, target) of its rows, in order.
using RowsOfPairs = std::vector<std::pair<int, int>>;

RowsOfPairs rows_of(const TokenParcel& parcel) {
  RowsOfPairs out;
  for (const int target : parcel.ranks) out.emplace_back(parcel.source, target);
  return out;
}

// Messages between two ranks under a tag, in the order of their steps.
struct Channel {
  std::vector<RowsOfPairs> sent, received;
  size_t begun = 0;  // sends whose step has been reached
};

// Follows the steps of all ranks: sends go on at once, and a parcel that is opened waits for its send.
class Dispatches {
 public:
  Dispatches(const std::vector<HostExchange>& routes, const std::vector<std::vector<HostStep>>& steps)
      : routes_(routes), steps_(steps), ranks_(static_cast<int>(routes.size())), states_(routes.size()) {}

  std::string first_wrong() {
    if (steps_.size() != routes_.size()) return "steps of " + std::to_string(steps_.size()) + " ranks";
    for (int rank = 0; rank < ranks_; ++rank) {
      for (const HostStep& step : steps_[at(rank)]) {
        if (std::string wrong = wrong_of(rank, step); !wrong.empty())
          return "rank " + std::to_string(rank) + " " + wrong;
      }
    }
    for (const auto& [key, channel] : channels_) {
      const auto& [from, to, tag] = key;
      if (channel.sent != channel.received)
        return "rank " + std::to_string(from) + " sends other messages than rank " + std::to_string(to) +
               " gets with tag " + std::to_string(tag);
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int source = 0; source < ranks_; ++source) {
        if (!states_[at(rank)].come.contains(source))
          return "rank " + std::to_string(rank) + " never gets the rows of rank " + std::to_string(source);
      }
    }
    return wait_for_ever();
  }

 private:
  struct State {
    std::set<int> come;                                       // sources whose rows have their place filled
    std::map<int, std::pair<Channel*, size_t>> getting = {};  // relayed parcels: the message that brings each
    std::set<int> opened = {};
    size_t next = 0;  // step
  };
  static size_t at(int i) { return static_cast<size_t>(i); }
  static bool within(int i, size_t size) { return i >= 0 && at(i) < size; }

  Channel& channel(int from, int to, int tag) { return channels_[{from, to, tag}]; }

  // Takes the step into the channels. Returns what is wrong with it whatever the others do.
  std::string wrong_of(int rank, const HostStep& step) {
    State& state = states_[at(rank)];
    const HostExchange& routes = routes_[at(rank)];
    const bool relayed =
        step.kind == Kind::kReceiveParcel || step.kind == Kind::kOpenParcel || step.kind == Kind::kHandOn;
    const std::vector<TokenParcel>& parcels = relayed ? routes.relayed : routes.sent;
    if (!within(step.rank, routes_.size())) return "meets no rank";
    if ((relayed || step.kind == Kind::kSendParcel) && !within(step.parcel, parcels.size()))
      return "has no such parcel";
    switch (step.kind) {
      case Kind::kReceiveParcel: {
        if (step.rank == rank || state.getting.contains(step.parcel)) return "gets a parcel from itself, or twice";
        Channel& from = channel(step.rank, rank, step.tag);
        state.getting[step.parcel] = {&from, from.received.size()};
        from.received.push_back(rows_of(parcels[at(step.parcel)]));
        return "";
      }
      case Kind::kReceiveRows:
        if (step.rank == rank) return "waits for rows from itself";
        channel(step.rank, rank, step.tag).received.push_back({{step.source, rank}});
        return put(rank, step.source);
      case Kind::kSendParcel:
        if (step.rank == rank || parcels[at(step.parcel)].source != rank) return "sends a parcel that is not its own";
        channel(rank, step.rank, step.tag).sent.push_back(rows_of(parcels[at(step.parcel)]));
        return "";
      case Kind::kSendRows:
        return give(rank, step, {rank, step.part});
      case Kind::kOpenParcel:
        if (!state.getting.contains(step.parcel)) return "opens a parcel that it does not get";
        state.opened.insert(step.parcel);
        return "";
      case Kind::kHandOn: {
        const TokenParcel& parcel = parcels[at(step.parcel)];
        if (!state.opened.contains(step.parcel)) return "hands on what it has not got";
        if (!within(step.part, parcel.ranks.size())) return "hands on rows that its parcel has not";
        return give(rank, step, {parcel.source, parcel.ranks[at(step.part)]});
      }
    }
    return "has a step of no kind";
  }

  std::string give(int rank, const HostStep& step, const std::pair<int, int>& rows) {
    if (step.rank != rank) {
      channel(rank, step.rank, step.tag).sent.push_back({rows});
      return "";
    }
    if (rows != std::pair(step.source, rank)) return "keeps rows of others";
    return put(rank, step.source);
  }

  std::string put(int rank, int source) {
    if (!within(source, routes_.size())) return "gets rows of no rank";
    return states_[at(rank)].come.insert(source).second ? ""
                                                        : "gets the rows of rank " + std::to_string(source) + " twice";
  }

  // Sends never wait, so that one order of the ranks stands for all.
  std::string wait_for_ever() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks_; ++rank) {
        State& state = states_[at(rank)];
        for (; state.next < steps_[at(rank)].size(); ++state.next, moved = true) {
          const HostStep& step = steps_[at(rank)][state.next];
          if (step.kind == Kind::kOpenParcel) {
            const auto& [from, place] = state.getting.at(step.parcel);
            if (from->begun <= place) break;
          }
          const bool sends =
              step.kind == Kind::kSendParcel || step.kind == Kind::kSendRows || step.kind == Kind::kHandOn;
          if (sends && step.rank != rank) ++channel(rank, step.rank, step.tag).begun;
        }
      }
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      if (states_[at(rank)].next < steps_[at(rank)].size())
        return "rank " + std::to_string(rank) + " waits for ever in step " + std::to_string(states_[at(rank)].next);
    }
    return "";
  }

  const std::vector<HostExchange>& routes_;
  const std::vector<std::vector<HostStep>>& steps_;
  const int ranks_;
  std::vector<State> states_;
  std::map<std::tuple<int, int, int>, Channel> channels_;  // by from, to and tag
};

}  // namespace

std::vector<HostStep> host_steps(const HostExchange& routes, int ranks, int rank) {
  std::vector<HostStep> out;
  const int parcel_tag = ranks;
  const auto relayed = static_cast<int>(routes.relayed.size());
  const auto route = [&](int parcel) -> const TokenParcel& { return routes.relayed[static_cast<size_t>(parcel)]; };
  for (int i = 0; i < relayed; ++i)
    out.push_back({Kind::kReceiveParcel, route(i).source, parcel_tag, route(i).source, i});
  for (int source = 0; source < ranks; ++source) {
    const int from = routes.from[static_cast<size_t>(source)];
    if (from != rank) out.push_back({Kind::kReceiveRows, from, source, source});
  }
  for (int i = 0; i < static_cast<int>(routes.sent.size()); ++i)
    out.push_back({Kind::kSendParcel, routes.sent[static_cast<size_t>(i)].relay, parcel_tag, rank, i});
  for (const int neighbor : routes.neighbors) out.push_back({Kind::kSendRows, neighbor, rank, rank, 0, neighbor});
  for (int i = 0; i < relayed; ++i) {
    out.push_back({Kind::kOpenParcel, route(i).source, parcel_tag, route(i).source, i});
    for (int part = 0; part < static_cast<int>(route(i).ranks.size()); ++part)
      out.push_back(
          {Kind::kHandOn, route(i).ranks[static_cast<size_t>(part)], route(i).source, route(i).source, i, part});
  }
  return out;
}

std::string unproved(const std::vector<HostExchange>& routes, const std::vector<std::vector<HostStep>>& steps) {
  return Dispatches(routes, steps).first_wrong();
}

}  // namespace herd::nn
