#include "herd/program/program_cells.h"

#include <algorithm>

#include "herd/base/units.h"
#include "herd/draw/table.h"
#include "herd/program/program_names.h"

namespace herd::program {
namespace {

constexpr std::array<ValueKind, ProgramCells::kUses.size()> kKinds = {ValueKind::kWeight, ValueKind::kGradient,
                                                                      ValueKind::kState};

// A value in a slot of its own has memory as long as the run, also while it holds nothing.
bool is_kept(const ValueInfo& info) { return info.persistent || (info.slot >= 0 && !info.pooled); }

// Cuts a part into `count` parts of its own, of which the rank has number `place`.
void cut(ProgramCells::Cell& cell, int place, int count) {
  cell.part = cell.part * count + place;
  cell.parts *= count;
}

ProgramCells::Cell cell_of(const Program& step, const Value& value, const ValueInfo& info,
                           const spec::ParameterGroupShape& group) {
  ProgramCells::Cell cell{.bytes = info.bytes, .tier = value.tier};
  if (step.tensor_ranks() > 1 && !group.parameters.empty() && group.parameters[0].cut_dim >= 0) {
    const int copies = group.max_copies();
    cut(cell, step.tensor_place() / copies, step.tensor_ranks() / copies);
  }
  for (int axis = 0; axis < static_cast<int>(step.mesh.axes.size()); ++axis)
    if (value.placement.is_shard(axis)) cut(cell, step.mesh.index(axis, step.rank), step.mesh.size(axis));
  return cell;
}

std::string cell_text(const ProgramCells::Cell& cell) {
  if (cell.bytes == 0) return ".";
  std::string text = format_bytes(static_cast<double>(cell.bytes));
  if (cell.parts > 1) text += ", part " + std::to_string(cell.part) + " of " + std::to_string(cell.parts);
  if (cell.tier != Tier::kDevice) text += ", " + std::string(tier_name(cell.tier));
  return text;
}

draw::Table table_of(const ProgramCells& cells, std::string name, bool right) {
  draw::Table table{{{std::move(name)}}, {}};
  for (const int rank : cells.ranks) table.columns.push_back({"rank " + std::to_string(rank), right});
  return table;
}

draw::Table sums(const ProgramCells& cells) {
  draw::Table table = table_of(cells, "together", true);
  std::vector<std::string> last = {"all"};
  std::vector<int64_t> of_rank(cells.ranks.size());
  for (size_t use = 0; use < cells.kUses.size(); ++use) {
    std::vector<std::string> row = {std::string(use_name(cells.kUses[use]))};
    for (size_t rank = 0; rank < cells.ranks.size(); ++rank) {
      of_rank[rank] += cells.bytes_of(use, rank);
      row.push_back(format_bytes(static_cast<double>(cells.bytes_of(use, rank))));
    }
    table.rows.push_back(std::move(row));
  }
  for (const int64_t bytes : of_rank) last.push_back(format_bytes(static_cast<double>(bytes)));
  table.rows.push_back(std::move(last));
  return table;
}

}  // namespace

int64_t ProgramCells::bytes_of(size_t use, size_t rank) const {
  int64_t bytes = 0;
  for (const Row& row : rows) bytes += row[use][rank].bytes;
  return bytes;
}

ProgramCells cells_of(std::span<const Program> programs, const spec::ModelTable& model) {
  ProgramCells out;
  for (const spec::ParameterGroupShape& group : model.groups) out.groups.push_back(group.name);
  ProgramCells::Row empty;
  empty.fill(std::vector<ProgramCells::Cell>(programs.size()));
  out.rows.assign(model.groups.size(), empty);
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    const Program& step = programs[rank];
    out.ranks.push_back(step.rank);
    for (const auto& [value, info] : step.values) {
      const auto kind = std::find(kKinds.begin(), kKinds.end(), value.kind);
      if (kind == kKinds.end() || value.codec != Codec::kPlain || !is_kept(info)) continue;
      const auto group = static_cast<size_t>(value.index);
      ProgramCells::Cell& cell = out.rows[group][static_cast<size_t>(kind - kKinds.begin())][rank];
      // A shard that is kept beside its whole lies inside it.
      if (info.bytes > cell.bytes) cell = cell_of(step, value, info, model.groups[group]);
    }
  }
  return out;
}

std::string cells_text(const ProgramCells& cells) {
  std::string text;
  for (size_t use = 0; use < cells.kUses.size(); ++use) {
    draw::Table table = table_of(cells, std::string(use_name(cells.kUses[use])), false);
    for (size_t group = 0; group < cells.groups.size(); ++group) {
      std::vector<std::string> row = {cells.groups[group]};
      for (const ProgramCells::Cell& cell : cells.rows[group][use]) row.push_back(cell_text(cell));
      table.rows.push_back(std::move(row));
    }
    text += draw::text_table(table) + "\n";
  }
  return text + draw::text_table(sums(cells));
}

}  // namespace herd::program
