#include <algorithm>

#include "herd/draw/svg.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/schedule_names.h"
#include "herd/schedule/schedule_states.h"

namespace herd {
namespace {

// Sizes of the picture, in pixels.
constexpr double kWidth = 1000, kRow = 22, kHead = 44, kGap = 26, kLabel = 120;

}  // namespace

std::string states_svg(const ScheduleStates& states) {
  size_t longest = 4;
  for (const auto& table : states.rounds)
    for (const auto& row : table)
      for (const auto& cell : row) longest = std::max(longest, cell_text(states, cell).size());
  const double cell_width = 12 + 8.5 * static_cast<double>(longest);
  const double table_width = cell_width * states.num_ranks + kGap;
  const double table_height = kHead + kRow * static_cast<double>(states.chunks.size());
  const int across = std::max(1, static_cast<int>((kWidth - kLabel) / table_width));
  const int num_tables = static_cast<int>(states.rounds.size()), down = (num_tables + across - 1) / across;
  draw::Svg svg(std::max(kWidth, kLabel + table_width), 30 + down * table_height);
  const std::string title = std::string(collective_name(states.collective)) + " by " + states.algorithm + ", " +
                            std::to_string(states.num_ranks) + " ranks: whose contributions each chunk holds";
  svg.text(4, 16, title);
  for (int t = 0; t < num_tables; ++t) {
    const double left = kLabel + (t % across) * table_width, top = 30 + (t / across) * table_height;
    svg.text(left, top + 14, t == 0 ? "before" : "after round " + std::to_string(t));
    for (int rank = 0; rank < states.num_ranks; ++rank)
      svg.text(left + (rank + 0.5) * cell_width, top + 32, std::to_string(rank), draw::Anchor::kMiddle, "faint");
    for (size_t chunk = 0; chunk < states.chunks.size(); ++chunk) {
      const double y = top + kHead - 6 + kRow * static_cast<double>(chunk);
      if (t % across == 0) {
        const auto& c = states.chunks[chunk];
        svg.text(left - 8, y + 15,
                 (c.from >= 0 ? std::to_string(c.from) + ": " : "") + "[" + std::to_string(c.begin) + ", " +
                     std::to_string(c.end) + ")",
                 draw::Anchor::kEnd, "faint");
      }
      for (int rank = 0; rank < states.num_ranks; ++rank) {
        const auto& cell = states.rounds[static_cast<size_t>(t)][chunk][static_cast<size_t>(rank)];
        const bool complete =
            is_reduction(states.collective) ? static_cast<int>(cell.size()) == states.num_ranks : !cell.empty();
        const std::string css = cell.empty() ? "grid-cell" : complete ? "c2 cell" : "c0 cell";
        const std::string text = cell_text(states, cell);
        svg.rectangle(left + rank * cell_width + 1, y, cell_width - 2, kRow - 2, css,
                      "rank " + std::to_string(rank) + ", " + chunk_text(states.chunks[chunk]) + ": " + text);
        if (!cell.empty()) svg.text(left + (rank + 0.5) * cell_width, y + 14, text, draw::Anchor::kMiddle);
      }
    }
  }
  return svg.finish(title);
}

}  // namespace herd
