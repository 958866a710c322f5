#include "herd/launch/node_watch.h"

#include <algorithm>
#include <cstdio>

namespace herd::launch {
namespace {

using namespace std::chrono_literals;
constexpr auto kPaused = 1s;  // this process did not run where two calls are further apart

std::string seconds_text(SteadyTime::duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace

std::optional<LostNode> NodeWatch::look_at(int node, const ClientState* launcher, const std::vector<ClientState>& ranks,
                                           std::chrono::milliseconds longest_silence, SteadyTime now) const {
  const std::string name = "node " + std::to_string(node);
  if (launcher == nullptr) return LostNode{node, name + " is gone: its launcher never said hello", begun_};
  const std::string where = "its launcher (" + launcher->location + ")";
  if (launcher->left) return LostNode{node, name + " is gone: " + where + " has left", launcher->last_heard};
  if (launcher->joined > begun_)
    return LostNode{node, name + " is gone: " + where + " was started while the job ran", begun_};
  if (launcher->disconnected && now - *launcher->disconnected >= kGoneAfter) {
    return LostNode{node,
                    name + " is gone: the connection of " + where + " was closed " +
                        seconds_text(now - *launcher->disconnected) + " ago",
                    *launcher->disconnected};
  }
  SteadyTime heard = launcher->last_heard;
  for (const ClientState& rank : ranks) {
    if (rank.rank / ranks_per_node_ == node) heard = std::max(heard, rank.last_heard);
  }
  if (now - std::max(heard, watching_since_) < longest_silence) return std::nullopt;
  return LostNode{node,
                  name + " is silent: " + where + " and its ranks have sent nothing for " + seconds_text(now - heard) +
                      ": they are stopped, or the network is cut",
                  heard, true};
}

std::optional<LostNode> NodeWatch::find_lost(const std::vector<ClientState>& launchers,
                                             const std::vector<ClientState>& ranks, const std::vector<bool>& awaited,
                                             std::chrono::milliseconds longest_silence, SteadyTime now) {
  if (now - checked_ > kPaused) watching_since_ = now;
  checked_ = now;
  for (int node = 0; node < num_nodes_; ++node) {
    if (!awaited[static_cast<size_t>(node)]) continue;
    const auto found = std::ranges::find(launchers, node, &ClientState::rank);
    if (auto lost = look_at(node, found == launchers.end() ? nullptr : &*found, ranks, longest_silence, now))
      return lost;
  }
  return std::nullopt;
}

}  // namespace herd::launch
