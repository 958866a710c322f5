#include "herd/launch/status.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "herd/base/error.h"
#include "herd/launch/store_client.h"

namespace herd::launch {
namespace {

constexpr auto kFreshStatus = std::chrono::milliseconds(500);  // after two missed heartbeats a rank's status is old

std::string rank_list(const std::vector<const Status*>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]->rank);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

std::optional<std::string> ask(Store& store, const std::string& key) {
  try {
    return store.get(key, std::chrono::steady_clock::now());
  } catch (const Error& error) {
    if (error.code() == Code::kTimeout) return std::nullopt;
    throw;
  }
}

}  // namespace

std::string status_key(Rank rank) { return "status/" + std::to_string(rank); }

Status parse_status(Rank rank, const std::string& value) {
  Status status{rank, 0, value};
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), status.sequence);
  if (failed == std::errc() && end < value.data() + value.size() && *end == ' ') {
    status.text.assign(end + 1, value.data() + value.size());
  }
  return status;
}

void publish_status(Store& store, Rank rank, std::string_view text, int64_t sequence) {
  if (auto* client = dynamic_cast<StoreClient*>(&store)) return client->note_status(sequence, text);
  store.set(status_key(rank), std::to_string(sequence) + " " + std::string(text));
}

std::optional<Status> read_status(Store& store, Rank rank) {
  const auto value = ask(store, status_key(rank));
  if (!value) return std::nullopt;
  return parse_status(rank, *value);
}

std::optional<std::chrono::milliseconds> heartbeat_age(Store& store, Rank rank) {
  const auto value = ask(store, "heartbeat/" + std::to_string(rank));
  if (!value || value->starts_with('-')) return std::nullopt;
  return std::chrono::milliseconds(std::strtoll(value->c_str(), nullptr, 10));
}

std::string first_divergence(const std::vector<Status>& ranks, SteadyTime now) {
  std::map<int64_t, std::map<std::string, std::vector<const Status*>>> by_sequence;
  for (const Status& status : ranks) {
    if (status.sequence >= 0) by_sequence[status.sequence][status.text].push_back(&status);
  }
  if (by_sequence.empty()) return "";
  const auto& [lowest, texts] = *by_sequence.begin();
  if (texts.size() > 1) {
    std::string line = "first divergence at operation " + std::to_string(lowest) + ":";
    for (const auto& [text, who] : texts) line += " " + rank_list(who) + " in \"" + text + "\";";
    line.back() = ' ';
    return line + "- their programs differ";
  }
  const auto& [highest, furthest] = *by_sequence.rbegin();
  std::vector<const Status*> behind = texts.begin()->second;
  const auto& ahead = furthest.begin()->second;
  std::erase_if(behind, [&](const Status* rank) {
    const auto ahead_since = (*std::ranges::min_element(ahead, {}, &Status::since))->since;
    return rank->heard < ahead_since && now - rank->heard < kFreshStatus;
  });
  if (by_sequence.size() == 1 || behind.empty()) return "";
  return "furthest behind: " + rank_list(behind) + " in \"" + texts.begin()->first + "\" (operation " +
         std::to_string(lowest) + "), while " + rank_list(ahead) + " reached \"" + furthest.begin()->first +
         "\" (operation " + std::to_string(highest) + ")";
}

}  // namespace herd::launch
