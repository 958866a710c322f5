#include <algorithm>

#include "herd/base/units.h"
#include "herd/draw/svg.h"
#include "herd/program/program_cells.h"

namespace herd::program {
namespace {

// Sizes of the picture, in pixels. A row has a bar for each use.
constexpr double kWidth = 1000, kLabel = 130, kGap = 10, kBar = 8, kRow = 34, kTop = 48, kHead = 24, kLine = 18;
constexpr size_t kMostAcross = 8;  // columns side by side; more ranks go below

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// Draws one bar: all of the group in grey, and this rank's part of it.
void draw_bar(draw::Svg& svg, double left, double top, double width, const ProgramCells::Cell& cell, MemoryUse use,
              const std::string& hover) {
  svg.rectangle(left, top, width, kBar, "grid-cell");
  if (cell.bytes == 0) return;
  const double part = width / cell.parts;
  const std::string css = draw::colour_class(static_cast<int>(use)) + (cell.tier == Tier::kDevice ? "" : " cell");
  const std::string which =
      cell.parts > 1 ? ", part " + std::to_string(cell.part) + " of " + std::to_string(cell.parts) : "";
  svg.rectangle(left + part * cell.part, top, std::max(1.0, part), kBar, css,
                hover + ": " + bytes_text(cell.bytes) + which);
}

void draw_legend(draw::Svg& svg, const ProgramCells& cells) {
  double x = kLabel;
  for (const MemoryUse use : cells.kUses) {
    svg.rectangle(x, 24, 12, 12, draw::colour_class(static_cast<int>(use)));
    svg.text(x + 18, 34, use_name(use));
    x += 150;
  }
  svg.text(x, 34, "paler: on the host; grey: kept by other ranks", draw::Anchor::kStart, "faint");
}

}  // namespace

std::string cells_svg(const ProgramCells& cells) {
  const size_t num_ranks = cells.ranks.size(), num_uses = cells.kUses.size();
  const size_t across = std::clamp<size_t>(num_ranks, 1, kMostAcross), down = (num_ranks + across - 1) / across;
  const double column = (kWidth - kLabel) / static_cast<double>(across);
  const double below = kHead + kRow * static_cast<double>(cells.groups.size());
  const double height = below + kLine * static_cast<double>(num_uses + 1) + 20;
  draw::Svg svg(kWidth, kTop + height * static_cast<double>(down));
  const std::string title = "What each rank keeps from step to step";
  svg.text(4, 16, title);
  draw_legend(svg, cells);
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    const double left = kLabel + column * static_cast<double>(rank % across);
    const double top = kTop + height * static_cast<double>(rank / across);
    const std::string name = "rank " + std::to_string(cells.ranks[rank]);
    svg.text(left, top + 14, name);
    for (size_t group = 0; group < cells.groups.size(); ++group) {
      const double y = top + kHead + kRow * static_cast<double>(group);
      if (rank % across == 0) svg.text(kLabel - 10, y + 16, cells.groups[group], draw::Anchor::kEnd);
      for (size_t use = 0; use < num_uses; ++use)
        draw_bar(svg, left, y + (kBar + 1) * static_cast<double>(use), column - kGap, cells.rows[group][use][rank],
                 cells.kUses[use],
                 name + ", " + std::string(use_name(cells.kUses[use])) + " of " + cells.groups[group]);
    }
    int64_t all = 0;
    for (size_t use = 0; use <= num_uses; ++use) {
      const double y = top + below + kLine * static_cast<double>(use) + 10;
      if (rank % across == 0)
        svg.text(kLabel - 10, y, use < num_uses ? use_name(cells.kUses[use]) : "all", draw::Anchor::kEnd, "faint");
      const int64_t bytes = use < num_uses ? cells.bytes_of(use, rank) : all;
      all += bytes;
      svg.text(left, y, bytes_text(bytes));
    }
  }
  return svg.finish(title);
}

}  // namespace herd::program
