// Tells which rank keeps the weights, gradients and optimizer states of which parameter group from step to step: the
// cells in which lectures draw ZeRO. A layer is a group, or several where ranks of the tensor axis share it. Values
// that live for a while only, such as gathered weights, are not in it. All of it follows from the values of programs
// and their placement. Threads: pure.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "herd/program/memory_use.h"
#include "herd/program/program.h"
#include "herd/spec/model_table.h"

namespace herd::program {

struct ProgramCells {
  // What a rank keeps of a group: part `part` of `parts`, or nothing where `bytes` is 0.
  struct Cell {
    int64_t bytes = 0;
    int part = 0, parts = 1;
    Tier tier = Tier::kDevice;
    bool operator==(const Cell&) const = default;
  };
  static constexpr std::array<MemoryUse, 3> kUses = {MemoryUse::kWeights, MemoryUse::kGradients, MemoryUse::kStates};
  using Row = std::array<std::vector<Cell>, kUses.size()>;  // a group's cells, by use and rank

  std::vector<std::string> groups = {};  // their names
  std::vector<int> ranks = {};
  std::vector<Row> rows = {};                       // by group
  int64_t bytes_of(size_t use, size_t rank) const;  // returns the sum over groups
};

// REQUIRES programs with slots (slots.h) of any ranks, made of this table.
ProgramCells cells_of(std::span<const Program> programs, const spec::ModelTable& model);

// Returns a table for each use, with a column for each rank, and one of the sums.
std::string cells_text(const ProgramCells& cells);
// Draws them: a column for each rank, a row for each group, and in a cell three bars, filled where the rank's part
// lies.
std::string cells_svg(const ProgramCells& cells);

}  // namespace herd::program
