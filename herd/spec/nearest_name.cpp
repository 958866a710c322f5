#include "herd/spec/nearest_name.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace herd::spec {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = static_cast<int>(i + j);
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string nearest_name(std::string_view wrong, std::span<const std::string> names) {
  constexpr size_t kLongest = 64;  // hostile names would cost time and memory
  std::string best;
  int best_distance = std::numeric_limits<int>::max();
  for (const std::string& name : names) {
    const int distance = edit_distance(wrong.substr(0, kLongest), std::string_view(name).substr(0, kLongest));
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

}  // namespace herd::spec
