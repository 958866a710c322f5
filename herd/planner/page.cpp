#include <algorithm>

#include "herd/base/units.h"
#include "herd/draw/page.h"
#include "herd/draw/svg.h"
#include "herd/draw/timeline_picture.h"
#include "herd/planner/paper_formulas_internal.h"
#include "herd/planner/plan_report.h"
#include "herd/planner/tables_internal.h"
#include "herd/program/draw_program.h"

namespace herd::planner {
namespace {

constexpr double kWidth = 1000, kBarHeight = 34;  // pixels

struct MemoryPart {
  const char* name;
  double bytes;
};

// Draws the memory of one tier as a bar of its parts, with the budget as a line across it.
std::string memory_bar(const std::string& tier, const TierBytes& bytes, double budget) {
  const MemoryPart parts[] = {{"weights", bytes.weights},
                              {"gradients", bytes.gradients},
                              {"optimizer states", bytes.states},
                              {"activations", bytes.activations},
                              {"buffers", bytes.buffers}};
  const double scale = (kWidth - 20) / std::max({bytes.total(), budget, 1.0});
  draw::Svg svg(kWidth, 96);
  double x = 10, legend = 10;
  for (int i = 0; const MemoryPart& part : parts) {
    const std::string css = draw::colour_class(i++), label = std::string(part.name) + " " + format_bytes(part.bytes);
    if (part.bytes <= 0) continue;
    svg.rectangle(x, 20, part.bytes * scale, kBarHeight, css, label);
    x += part.bytes * scale;
    svg.rectangle(legend, 76, 10, 10, css);
    svg.text(legend + 15, 85, label);
    legend += 30 + 6.6 * static_cast<double>(label.size());
  }
  if (budget > 0) {
    const double at = 10 + budget * scale;
    svg.line(at, 12, at, 62, "axis");
    svg.text(at, 10, "budget " + format_bytes(budget), at > kWidth / 2 ? draw::Anchor::kEnd : draw::Anchor::kStart);
  }
  return svg.finish(tier + " memory of a rank");
}

draw::Section memory_section(const Plan& plan) {
  std::string html = "<p>" + draw::escape(verdict(plan)) + "</p>\n<figure>" +
                     memory_bar("Device", plan.prediction.device, static_cast<double>(plan.budget.device)) +
                     "</figure>\n";
  if (plan.prediction.host.total() >= 4096)
    html +=
        "<figure>" + memory_bar("Host", plan.prediction.host, static_cast<double>(plan.budget.host)) + "</figure>\n";
  return {"Memory", html + draw::html_table(memory_rows(plan))};
}

draw::Section cost_section(const Plan& plan) {
  draw::Table table{{{""}, {""}}, {}};
  for (const auto& [name, value] : cost_rows(plan)) table.rows.push_back({name, value});
  return {"A step", draw::html_table(table) + "<p>Predicted " + draw::escape(method(plan)) + ".</p>\n"};
}

draw::Section suggestion_section(const Plan& plan) {
  std::string html;
  const Variants& variants = plan.variants;
  if (!variants.fitting.empty()) html += draw::html_table(variant_rows(plan, variants.fitting));
  if (variants.built > 0) html += "<p>" + draw::escape(variant_remark(plan)) + ".</p>\n";
  if (!variants.by_one_more.empty())
    html += draw::html_table(variant_rows(plan, variants.by_one_more)) +
            "<p>With one more technique, by its program.</p>\n";
  if (!plan.suggestions.empty()) {
    html += draw::html_table(suggestion_rows(plan)) +
            "<p>Cheapest first, in device-seconds a step; predicted by equations.</p>\n";
  } else if (variants.fitting.empty() && variants.by_one_more.empty()) {
    html += "<p>" + draw::escape(nothing_fits(plan)) + "</p>\n";
  }
  if (!plan.not_looked_at.empty()) html += "<p>" + draw::escape(search_remark(plan)) + ".</p>\n";
  return {"What would make it fit", html};
}

draw::Section equation_section(const Plan& plan) {
  std::string html;
  for (const auto& [title, table] : paper_tables(plan.paper_formulas()))
    html += "<h3>" + draw::escape(title) + "</h3>\n" + draw::html_table(table);
  return {"By published equations", html};
}

}  // namespace

std::string plan_page(const Plan& plan) {
  std::vector<draw::Section> sections;
  sections.push_back(
      {"", "<p>" + draw::escape(headline(plan)) + "<br>" + draw::escape(spec::summary(plan.prediction.layout)) +
               "<br>" + draw::escape(plan.cluster.name) +
               (plan.automatic_choice.empty() ? "" : "<br>" + draw::escape(plan.automatic_choice)) + "</p>\n"});
  sections.push_back(memory_section(plan));
  sections.push_back(cost_section(plan));
  if (!plan.fits()) sections.push_back(suggestion_section(plan));
  if (plan.prediction.simulation) {
    const auto& simulation = *plan.prediction.simulation;
    sections.push_back(
        {"Memory over a step",
         "<p>What rank 0 is predicted to hold while each op of a step runs; point at an op for its figures.</p>\n" +
             program::memory_figure(simulation.memory, {}, plan.budget.device) +
             program::memory_table(simulation.memory, {}) + program::op_memory_table(simulation.memory, {}) +
             program::tier_figure(simulation.memory, simulation.traffic) +
             program::traffic_table(simulation.traffic, {}) +
             program::expert_traffic_table(simulation.expert_traffic, {})});
    sections.push_back({"Ops of a step", "<figure>" + draw::timeline_svg(simulation.timeline) + "</figure>\n"});
  }
  sections.push_back(equation_section(plan));
  sections.push_back({"Run file", "<pre>" + draw::escape(spec::to_toml(plan.run)) + "</pre>\n"});
  sections.push_back({"Machine", "<pre>" + draw::escape(to_toml(plan.cluster)) + "</pre>\n"});
  return draw::html_page("Plan of " + plan.name, sections);
}

}  // namespace herd::planner
