#include "herd/planner/fit_matrix.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/draw/svg.h"
#include "herd/draw/table.h"

namespace herd::planner {
namespace {

// Sizes of the picture, in pixels.
constexpr double kMatrixWidth = 1000, kModelWidth = 210, kMatrixRow = 24, kMatrixTop = 70;
// Colours of stages 0 to 3 in the picture.
constexpr const char* kStageColours[] = {"c2 cell", "c0 cell", "c4 cell", "c1 cell"};

std::string stage_name(int stage) { return "ZeRO-" + std::to_string(stage); }

// Returns what stands before "; fix: ..", as one line.
std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

std::string ranks_text(const FitMatrix& matrix) {
  return std::to_string(matrix.ranks) + (matrix.ranks == 1 ? " rank" : " ranks") + " with a device each";
}

std::string title_of(const FitMatrix& matrix) {
  return "The least ZeRO stage that fits, and what it needs; " + ranks_text(matrix);
}

}  // namespace

int FitMatrix::Row::stage_on(const Device& device) const {
  for (int stage = 0; why_not.empty() && stage < 4; ++stage)
    if (bytes[static_cast<size_t>(stage)] <= static_cast<double>(device.bytes)) return stage;
  return -1;
}

FitMatrix::Row fit_row(const std::string& model, const spec::RunFile& run, int ranks, const Cluster& cluster) {
  FitMatrix::Row row{.model = model};
  try {
    for (int stage = 0; stage < 4; ++stage) {
      spec::RunFile changed = run;
      changed.strategy.zero = stage;
      const Prediction prediction = memory_by_equations(changed, ranks, cluster);
      row.parameters = prediction.parameters;
      row.bytes[static_cast<size_t>(stage)] = prediction.device_bound;
    }
  } catch (const Error& error) {
    if (error.code() != Code::kBadConfig) throw;
    row = {.model = model, .why_not = first_line(error.message())};
  }
  return row;
}

std::string matrix_text(const FitMatrix& matrix) {
  draw::Table table{{{"model"}, {"parameters", true}}, {}};
  for (int stage = 0; stage < 4; ++stage) table.columns.push_back({stage_name(stage), true});
  for (const FitMatrix::Device& device : matrix.devices) table.columns.push_back({device.name, true});
  std::string reasons;
  for (const FitMatrix::Row& row : matrix.rows) {
    if (!row.why_not.empty()) {
      reasons += row.model + ": " + row.why_not + "\n";
      continue;
    }
    std::vector<std::string> cells = {row.model, format_count(static_cast<double>(row.parameters))};
    for (const double bytes : row.bytes) cells.push_back(format_bytes(bytes));
    for (const FitMatrix::Device& device : matrix.devices) {
      const int stage = row.stage_on(device);
      cells.push_back(stage < 0 ? "-" : std::to_string(stage));
    }
    table.rows.push_back(std::move(cells));
  }
  return ranks_text(matrix) + ": what one needs under each ZeRO stage, by equations,\n" +
         "and the least stage that fits a device; - where none does\n\n" + draw::text_table(table) +
         (reasons.empty() ? "" : "\n") + reasons;
}

std::string matrix_svg(const FitMatrix& matrix) {
  const double width = (kMatrixWidth - kModelWidth) / static_cast<double>(std::max<size_t>(1, matrix.devices.size()));
  draw::Svg svg(kMatrixWidth, kMatrixTop + kMatrixRow * static_cast<double>(matrix.rows.size()) + 6);
  svg.text(4, 16, title_of(matrix));
  for (int stage = 0; stage < 4; ++stage) {
    svg.rectangle(kModelWidth + 90 * stage, 26, 12, 12, kStageColours[stage]);
    svg.text(kModelWidth + 90 * stage + 18, 36, stage_name(stage));
  }
  svg.rectangle(kModelWidth + 360, 26, 12, 12, "grid-cell");
  svg.text(kModelWidth + 378, 36, "does not fit; what stage 3 needs", draw::Anchor::kStart, "faint");
  for (size_t i = 0; i < matrix.devices.size(); ++i)
    svg.text(kModelWidth + (static_cast<double>(i) + 0.5) * width, kMatrixTop - 8, matrix.devices[i].name,
             draw::Anchor::kMiddle);
  for (size_t i = 0; i < matrix.rows.size(); ++i) {
    const FitMatrix::Row& row = matrix.rows[i];
    const double top = kMatrixTop + kMatrixRow * static_cast<double>(i);
    svg.text(kModelWidth - 76, top + 16, row.model, draw::Anchor::kEnd);
    svg.text(kModelWidth - 12, top + 16, row.why_not.empty() ? format_count(static_cast<double>(row.parameters)) : "-",
             draw::Anchor::kEnd, "faint");
    for (size_t k = 0; k < matrix.devices.size(); ++k) {
      const FitMatrix::Device& device = matrix.devices[k];
      const int stage = row.stage_on(device);
      const double left = kModelWidth + static_cast<double>(k) * width;
      const std::string need =
          row.why_not.empty() ? format_bytes(row.bytes[stage < 0 ? 3 : static_cast<size_t>(stage)]) : row.why_not;
      svg.rectangle(
          left + 1, top + 1, width - 2, kMatrixRow - 2, stage < 0 ? "grid-cell" : kStageColours[stage],
          row.model + " on " + device.name + ": " + (stage < 0 ? "does not fit, " : stage_name(stage) + ", ") + need);
      if (row.why_not.empty())
        svg.text(left + width / 2, top + 16, need, draw::Anchor::kMiddle, stage < 0 ? "faint" : "text");
    }
  }
  return svg.finish(title_of(matrix));
}

}  // namespace herd::planner
