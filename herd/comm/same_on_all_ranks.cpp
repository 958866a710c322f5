#include "herd/comm/same_on_all_ranks.h"

#include <algorithm>
#include <cstdint>

#include "herd/base/error.h"
#include "herd/kernels/hash.h"

namespace herd::comm {
namespace {

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string quoted(const std::vector<std::string_view>& lines, size_t index) {
  if (index < lines.size()) return "\"" + std::string(lines[index]) + "\"";
  return "no more than " + std::to_string(lines.size());
}

}  // namespace

void check_same_on_all_ranks(Communicator& comm, std::string_view what, const std::vector<std::string>& lines,
                             std::string_view fix) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const auto bytes = static_cast<int64_t>(text.size());
  std::vector<int64_t> mine = {static_cast<int64_t>(kernels::hash(text.data(), bytes)), bytes};
  std::vector<int64_t> all(2 * static_cast<size_t>(comm.size()));
  comm.all_gather(mine, all, {.name = "same_on_all_ranks"});
  int64_t longest = 1;
  bool same = true;
  for (size_t k = 0; k < all.size(); k += 2) {
    same = same && all[k] == all[0] && all[k + 1] == all[1];
    longest = std::max(longest, all[k + 1]);
  }
  if (same) return;

  std::vector<uint8_t> padded(text.begin(), text.end()),
      texts(static_cast<size_t>(longest) * static_cast<size_t>(comm.size()));
  padded.resize(static_cast<size_t>(longest));
  comm.all_gather(padded, texts, {.name = "same_on_all_ranks"});
  const auto lines_of = [&](size_t rank) {
    const auto* begin = reinterpret_cast<const char*>(texts.data()) + rank * static_cast<size_t>(longest);
    return split_lines(std::string_view(begin, static_cast<size_t>(all[2 * rank + 1])));
  };
  const auto root_lines = lines_of(0);
  for (size_t rank = 1; rank < static_cast<size_t>(comm.size()); ++rank) {
    const auto peer_lines = lines_of(rank);
    size_t index = 0;
    while (index < root_lines.size() && index < peer_lines.size() && root_lines[index] == peer_lines[index]) ++index;
    if (index == root_lines.size() && index == peer_lines.size()) continue;
    throw Error(Code::kBadConfig, std::string(what) + " " + std::to_string(index) + ": rank 0 has " +
                                      quoted(root_lines, index) + ", rank " + std::to_string(rank) + " has " +
                                      quoted(peer_lines, index) + "\n  fix: " + std::string(fix));
  }
}

}  // namespace herd::comm
