#include "herd/train/expert_load_figure.h"

#include <algorithm>
#include <cmath>

#include "herd/draw/heat_map.h"

namespace herd::train {
namespace {

constexpr size_t kMostRows = 128, kMostColumns = 100;
constexpr double kDarkest = 2;  // times the mean load

using Steps = std::vector<const StepMetrics*>;

// Returns the steps that have loads of as many layers and experts as the last one.
Steps steps_with_load(const std::vector<StepMetrics>& metrics) {
  Steps steps;
  for (auto step = metrics.rbegin(); step != metrics.rend(); ++step) {
    if (step->expert_load.empty() || step->expert_load[0].empty()) continue;
    const auto has_shape = [&](const StepMetrics& last) {
      return std::ranges::equal(step->expert_load, last.expert_load,
                                [](const auto& a, const auto& b) { return a.size() == b.size(); });
    };
    if (steps.empty() || has_shape(*steps[0])) steps.push_back(&*step);
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

// Returns each expert's load in some steps together, over the mean one; NaN where no token came.
std::vector<double> shares(Steps::const_iterator begin, Steps::const_iterator end, size_t layer) {
  std::vector<double> load((*begin)->expert_load[layer].size());
  double total = 0;
  for (auto step = begin; step != end; ++step) {
    const std::vector<int64_t>& of_step = (*step)->expert_load[layer];
    for (size_t e = 0; e < load.size(); ++e) load[e] += static_cast<double>(of_step[e]);
  }
  for (const double tokens : load) total += tokens;
  for (double& tokens : load) tokens = total > 0 ? tokens * static_cast<double>(load.size()) / total : std::nan("");
  return load;
}

}  // namespace

std::string expert_load_figure(const std::vector<StepMetrics>& metrics, int64_t first_layer) {
  const Steps steps = steps_with_load(metrics);
  if (steps.empty()) return "";
  const auto& shape = steps[0]->expert_load;
  const bool by_expert = shape.size() * shape[0].size() <= kMostRows;
  draw::HeatMap map{.x_label = "step", .rows = {}, .columns = {}, .values = {}, .darkest = kDarkest};
  for (size_t layer = 0; layer < shape.size(); ++layer) {
    const std::string name = "layer " + std::to_string(first_layer + static_cast<int64_t>(layer));
    if (!by_expert) map.rows.push_back(name);
    for (size_t e = 0; by_expert && e < shape[layer].size(); ++e)
      map.rows.push_back(name + " expert " + std::to_string(e));
  }
  map.values.resize(map.rows.size());
  const size_t together = 1 + (steps.size() - 1) / kMostColumns;
  for (size_t first = 0; first < steps.size(); first += together) {
    const auto begin = steps.begin() + static_cast<int64_t>(first);
    const auto end = steps.begin() + static_cast<int64_t>(std::min(steps.size(), first + together));
    map.columns.push_back(static_cast<double>((*begin)->step));
    size_t row = 0;
    for (size_t layer = 0; layer < shape.size(); ++layer) {
      const std::vector<double> of_experts = shares(begin, end, layer);
      if (!by_expert) map.values[row++].push_back(*std::max_element(of_experts.begin(), of_experts.end()));
      for (size_t e = 0; by_expert && e < of_experts.size(); ++e) map.values[row++].push_back(of_experts[e]);
    }
  }
  return std::string("<p>Tokens that ") + (by_expert ? "each expert" : "the busiest expert of each layer") +
         " got, over the mean of its layer: 0 is empty, 2 and more is full. Point at a cell for its figure.</p>\n" +
         draw::heat_map(map);
}

}  // namespace herd::train
