#include "herd/planner/layer_tensors.h"

#include <algorithm>
#include <cmath>

#include "herd/base/units.h"
#include "herd/draw/svg.h"
#include "herd/draw/table.h"
#include "herd/planner/paper_formulas.h"

namespace herd::planner {
namespace {

using spec::LayerTensor;
using spec::RecomputeKind;

// Sizes of the picture, in pixels. A row has two bars.
constexpr double kLayerWidth = 1000, kNameWidth = 290, kBarsWidth = 560, kTensorBar = 9, kTensorRow = 27,
                 kLayerTop = 76;

std::string whole_number(double value) { return std::to_string(std::llround(value)); }

RecomputeKind recompute_of(const spec::RunFile& run) {
  const std::string& stated = run.strategy.recompute;
  return stated == "none"        ? RecomputeKind::kNone
         : stated == "selective" ? RecomputeKind::kSelective
                                 : RecomputeKind::kFull;
}

// Returns the equation of all terms, as spec::layer_activation_bytes() has it.
std::string sum_equation(int t, bool sequence_parallel, RecomputeKind recompute) {
  if (recompute == RecomputeKind::kFull) return "2sbh";
  const bool scores = recompute == RecomputeKind::kNone;
  if (t == 1) return scores ? "sbh(34 + 5as/h)" : "34sbh";
  if (sequence_parallel) return scores ? "sbh(34/t + 5as/(ht))" : "34sbh/t";
  return scores ? "sbh(10 + 24/t + 5as/(ht))" : "sbh(10 + 24/t)";
}

std::string bytes_or_none(double bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; }

}  // namespace

double LayerTensors::published() const {
  double bytes = 0;
  for (const Row& row : rows) bytes += row.published;
  return bytes;
}

double LayerTensors::kept() const {
  double bytes = 0;
  for (const Row& row : rows) bytes += row.kept;
  return bytes;
}

LayerTensors layer_tensors_of(const std::string& name, const spec::RunFile& run, const spec::Layout& layout) {
  const RecomputeKind recompute = recompute_of(run);
  const bool sequence_parallel = layout.tp > 1 && run.strategy.sequence_parallel;
  const auto kept = spec::kept_tensors(run, layout.micro_batch);
  const PaperFormulas paper = paper_formulas_of(run, layout, 0);
  std::map<LayerTensor, double> published, of_all_ranks;
  LayerTensors out;
  if (!paper.layers.empty()) {
    published = spec::layer_activation_terms(paper.layer, layout.tp, sequence_parallel, recompute);
    of_all_ranks = spec::layer_activation_terms(paper.layer, 1, false, recompute);
    out.equation = sum_equation(layout.tp, sequence_parallel, recompute);
  }
  out.title = "What backward needs of a layer of " + name + ", on one rank in " + run.strategy.precision;
  out.symbols = "s = " + whole_number(static_cast<double>(run.model.context) / layout.cp) +
                " tokens, b = " + std::to_string(layout.micro_batch) +
                (layout.micro_batch == 1 ? " sequence" : " sequences") + ", h = " + std::to_string(run.model.width) +
                ", a = " + std::to_string(run.model.heads) + " heads, t = " + std::to_string(layout.tp) +
                (sequence_parallel ? ", sequence parallel" : "") + ", recompute " + run.strategy.recompute;
  for (int which = 0; which <= static_cast<int>(LayerTensor::kNormNumbers); ++which) {
    const auto tensor = static_cast<LayerTensor>(which);
    LayerTensors::Row row{.name = std::string(spec::tensor_name(tensor))};
    if (published.contains(tensor)) {
      row.equation = spec::activation_equation(tensor);
      row.published = published.at(tensor);
      if (row.published < of_all_ranks.at(tensor)) row.equation += "/t";
    }
    // A layer that is computed again keeps its input.
    if (kept.contains(tensor) && (recompute != RecomputeKind::kFull || tensor == LayerTensor::kFirstNormInput))
      row.kept = static_cast<double>(kept.at(tensor));
    if (row.published > 0 || row.kept > 0) out.rows.push_back(std::move(row));
  }
  return out;
}

std::string layer_text(const LayerTensors& layer) {
  const bool has_paper = !layer.equation.empty();
  draw::Table table{{{"tensor"}}, {}};
  if (has_paper) table.columns.insert(table.columns.end(), {{"equation"}, {"published, 16 bit", true}});
  table.columns.push_back({"herd keeps", true});
  const auto add = [&](const std::string& name, const std::string& equation, double published, double kept) {
    std::vector<std::string> cells = {name};
    if (has_paper) cells.insert(cells.end(), {equation, bytes_or_none(published)});
    cells.push_back(bytes_or_none(kept));
    table.rows.push_back(std::move(cells));
  };
  for (const LayerTensors::Row& row : layer.rows) add(row.name, row.equation, row.published, row.kept);
  add("together", layer.equation, layer.published(), layer.kept());
  return layer.title + "\n" + layer.symbols + "\n\n" + draw::text_table(table);
}

std::string layer_svg(const LayerTensors& layer) {
  const bool has_paper = !layer.equation.empty();
  double most = 1;
  for (const LayerTensors::Row& row : layer.rows) most = std::max({most, row.published, row.kept});
  draw::Svg svg(kLayerWidth, kLayerTop + kTensorRow * static_cast<double>(layer.rows.size()) + 34);
  svg.text(4, 16, layer.title);
  svg.text(4, 34, layer.symbols, draw::Anchor::kStart, "faint");
  svg.rectangle(kNameWidth, 46, 12, 12, "c0");
  svg.text(kNameWidth + 18, 56, "herd keeps");
  if (has_paper) {
    svg.rectangle(kNameWidth + 120, 46, 12, 12, "c7");
    svg.text(kNameWidth + 138, 56, "published, 16 bit: Korthikanti et al. 2022");
  }
  const auto bar = [&](double top, double bytes, const char* css, const std::string& hover) {
    if (bytes > 0) svg.rectangle(kNameWidth, top, std::max(1.0, bytes / most * kBarsWidth), kTensorBar, css, hover);
  };
  double top = kLayerTop;
  for (const LayerTensors::Row& row : layer.rows) {
    svg.text(kNameWidth - 80, top + 13, row.name, draw::Anchor::kEnd);
    svg.text(kNameWidth - 10, top + 13, row.equation, draw::Anchor::kEnd, "faint");
    const std::string figures = bytes_or_none(row.kept) + (has_paper ? " of " + bytes_or_none(row.published) : "");
    bar(top, row.kept, "c0", row.name + ": herd keeps " + bytes_or_none(row.kept));
    bar(top + kTensorBar + 1, row.published, "c7", row.name + ": published " + bytes_or_none(row.published));
    svg.text(kNameWidth + std::max(row.kept, row.published) / most * kBarsWidth + 8, top + 13, figures,
             draw::Anchor::kStart, "faint");
    top += kTensorRow;
  }
  svg.text(kNameWidth - 10, top + 16, "together " + layer.equation, draw::Anchor::kEnd);
  svg.text(kNameWidth, top + 16,
           format_bytes(layer.kept()) + (has_paper ? " of " + format_bytes(layer.published()) : ""));
  return svg.finish(layer.title);
}

}  // namespace herd::planner
