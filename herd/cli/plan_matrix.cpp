#include "herd/cli/plan_matrix.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "herd/base/units.h"
#include "herd/cli/known_devices.h"
#include "herd/cli/known_models.h"
#include "herd/cli/read_run_file.h"
#include "herd/cli/write_file.h"
#include "herd/draw/page.h"
#include "herd/draw/svg.h"

namespace herd::cli {

planner::FitMatrix make_matrix(const PlanMatrixOptions& options) {
  std::vector<std::string> models, overrides;
  for (const std::string& word : options.words)
    (word.find('=') == std::string::npos ? models : overrides).push_back(word);
  if (models.empty())
    for (const KnownFile& known : known_files("models")) models.push_back(known.name);
  planner::FitMatrix matrix{.ranks = options.ranks, .devices = {}, .rows = {}};
  std::optional<planner::DeviceTable> known;  // read where a word is a name
  for (const std::string& device : options.devices) {
    const bool is_name = !device.empty() && std::isalpha(static_cast<unsigned char>(device[0])) != 0;
    if (is_name && !known) known = known_devices();
    const planner::KnownDevice* named = is_name ? known->device(device) : nullptr;
    matrix.devices.push_back({device, named != nullptr ? named->memory_bytes : parse_bytes(device)});
  }
  for (const std::string& model : models) {
    const std::filesystem::path path = find_file(model, "models");
    matrix.rows.push_back(
        planner::fit_row(path.stem(), read_run_file(path.string(), overrides), options.ranks, options.cluster));
  }
  std::stable_sort(matrix.rows.begin(), matrix.rows.end(),
                   [](const auto& a, const auto& b) { return a.parameters < b.parameters; });
  return matrix;
}

int run_plan_matrix(const PlanMatrixOptions& options) {
  const planner::FitMatrix matrix = make_matrix(options);
  if (!options.svg.empty()) write_file(options.svg, matrix_svg(matrix));
  if (!options.html.empty())
    write_file(options.html, draw::html_page("What fits where",
                                             {{"", "<figure>" + matrix_svg(matrix) + "</figure>\n"},
                                              {"Bytes", "<pre>" + draw::escape(matrix_text(matrix)) + "</pre>\n"}}));
  if (options.svg.empty() && options.html.empty()) std::fputs(matrix_text(matrix).c_str(), stdout);
  return 0;
}

}  // namespace herd::cli
