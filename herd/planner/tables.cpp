#include <cmath>
#include <cstdio>

#include "herd/base/printable.h"
#include "herd/base/units.h"
#include "herd/planner/partitioned_model_internal.h"
#include "herd/planner/tables_internal.h"
#include "herd/spec/chain_table.h"
#include "herd/spec/compute.h"

namespace herd::planner {
namespace {

constexpr double kMinHostBytes = 4096;  // a host that holds less, such as losses, gets no row

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

std::string flops_text(double flops) {
  char text[32];
  const char* units[] = {"GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  int unit = 0;
  for (flops /= 1e9; flops >= 1000 && unit < 3; ++unit) flops /= 1000;
  std::snprintf(text, sizeof text, "%.3g %s", flops, units[unit]);
  return text;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

}  // namespace

std::string headline(const Plan& plan) {
  const auto& model = plan.run.model;
  const std::string blocks =
      plan.run.chain ? " of " + std::to_string(plan.run.chain->traced().blocks.size()) + " blocks"
                     : ", " + std::to_string(model.layers) + " layers of width " + std::to_string(model.width);
  return printable(plan.name) + ": " + model.kind + blocks + ", " +
         format_count(static_cast<double>(plan.prediction.parameters)) + " parameters, " +
         (plan.prediction.active < plan.prediction.parameters
              ? format_count(static_cast<double>(plan.prediction.active)) + " of which a token uses, "
              : "") +
         (plan.prediction.frozen > 0 ? format_count(static_cast<double>(plan.prediction.frozen)) + " of them frozen, "
                                     : "") +
         plan.run.strategy.precision +
         (plan.run.strategy.gradient_precision == "same" ? ""
                                                         : ", gradients in " + plan.run.strategy.gradient_precision);
}

draw::Table memory_rows(const Plan& plan) {
  const Prediction& p = plan.prediction;
  draw::Table table{{{"of a rank, at its peak"}, {"device", true}}, {}};
  const bool host = p.host.total() >= kMinHostBytes, nvme = p.nvme.total() > 0;
  if (host) table.columns.push_back({"host", true});
  if (nvme) table.columns.push_back({"nvme", true});
  const auto row = [&](const char* name, double TierBytes::*member) {
    std::vector<std::string> cells = {name, format_bytes(p.device.*member)};
    if (host) cells.push_back(format_bytes(p.host.*member));
    if (nvme) cells.push_back(format_bytes(p.nvme.*member));
    table.rows.push_back(std::move(cells));
  };
  row("weights", &TierBytes::weights);
  row("gradients", &TierBytes::gradients);
  row("optimizer states", &TierBytes::states);
  row("activations", &TierBytes::activations);
  row("buffers", &TierBytes::buffers);
  table.rows.push_back({"total", format_bytes(p.device.total())});
  if (host) table.rows.back().push_back(format_bytes(p.host.total()));
  if (nvme) table.rows.back().push_back(format_bytes(p.nvme.total()));
  return table;
}

std::string verdict(const Plan& plan) {
  const Prediction& p = plan.prediction;
  const std::string need = format_bytes(p.device_bound);
  std::string text;
  if (plan.budget.device == 0) {
    text = "needs " + need + " a device; no budget is stated (--budget, memory.device_budget or --cluster)";
  } else {
    const std::string budget = format_bytes(static_cast<double>(plan.budget.device));
    const bool fits = p.device_bound <= static_cast<double>(plan.budget.device);
    text = (fits ? "fits: " : "does not fit: ") + need + " of " + budget + " a device, " +
           percent(p.device_bound / static_cast<double>(plan.budget.device));
  }
  if (plan.budget.host > 0 && p.host.total() >= kMinHostBytes) {
    const bool fits = p.host.total() <= static_cast<double>(plan.budget.host);
    text += std::string(fits ? "; host " : "; does not fit the host: ") + format_bytes(p.host.total()) + " of " +
            format_bytes(static_cast<double>(plan.budget.host));
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> cost_rows(const Plan& plan) {
  const Prediction& p = plan.prediction;
  std::vector<std::pair<std::string, std::string>> rows;
  rows.emplace_back("step", format_us(p.step_us) + " predicted, " + format_count(p.tokens_per_s()) + " tokens/s");
  if (plan.fifo_step_us > 0)
    rows.emplace_back("without priority", format_us(plan.fifo_step_us) + " a step, strategy.schedule = \"fifo\"");
  rows.emplace_back("arithmetic", flops_text(p.flops) + " a rank, " + format_us(p.compute_us) + " alone, " +
                                      percent(p.compute_us / p.step_us) + " of the step");
  if (p.idle_share > 0) rows.emplace_back("pipeline bubble", percent(p.idle_share) + " of the passes");
  std::string sent;
  for (const auto& [axis, bytes] : p.sent) {
    if (bytes > 0) sent += (sent.empty() ? "" : ", ") + format_bytes(bytes) + " on " + axis;
  }
  rows.emplace_back("sent by a rank", sent.empty() ? "nothing" : sent);
  if (p.host_link_out + p.host_link_in > 0) {
    const double rate = plan.cluster.device.host_link_bytes_per_us;
    rows.emplace_back("host link", format_bytes(p.host_link_out) + " out, " + format_bytes(p.host_link_in) +
                                       " in, at " + format_bytes(1e6 * rate) + "/s each way, " +
                                       format_us((p.host_link_out + p.host_link_in) / rate) + " alone");
  }
  if (p.nvme.total() > 0) {
    const double stated = static_cast<double>(plan.run.memory.nvme_bandwidth);
    const double rate = stated > 0 ? stated : 1e6 * plan.cluster.device.nvme_bytes_per_us;
    const auto& files = plan.cluster.files;
    rows.emplace_back("files", "a rank's at " + format_bytes(rate) + "/s" +
                                   (files ? ", " + std::to_string(files->depth) + " requests of " +
                                                format_bytes(static_cast<double>(files->chunk)) +
                                                " at a time, measured in " + printable(files->of)
                                          : ""));
  }
  if (plan.tokens > 0) {
    const double days = plan.tokens / p.tokens_per_s() / 86400;
    char text[160];
    std::snprintf(text, sizeof text, "%.3g days, %.3g device-days; 6PT = %.3g FLOP", days, days * plan.ranks,
                  spec::training_flops(static_cast<double>(p.active), plan.tokens));
    rows.emplace_back(format_count(plan.tokens) + " tokens", text);
  }
  if (plan.tokens > 0 && plan.days > 0) {
    char text[160];
    std::snprintf(text, sizeof text, "%.0f devices, %s/s each %s", std::ceil(plan.devices_needed()),
                  flops_text(plan.sustained_flops()).c_str(),
                  plan.flops > 0 ? "as stated" : "as this run is predicted to keep up");
    char days[32];
    std::snprintf(days, sizeof days, "in %.3g days", plan.days);
    rows.emplace_back(days, text);
  }
  if (!p.peak_at.empty()) rows.emplace_back("memory peak", "at " + p.peak_at);
  return rows;
}

std::string method(const Plan& plan) {
  const Prediction& p = plan.prediction;
  return (p.simulated ? "by building the step's program and simulating it" : "by equations: " + p.why_equations) +
         (has_times_of_another_chain(plan.cluster, plan.run)
              ? "; the machine's times of blocks and data are those of another chain, and do not count"
              : "");
}

draw::Table variant_rows(const Plan& plan, const std::vector<Variant>& variants) {
  draw::Table table{{{"change"}, {"device", true}, {"step", true}, {"of today's", true}}, {}};
  for (const Variant& variant : variants) {
    const Prediction& p = variant.prediction;
    table.rows.push_back({joined(variant.changes), format_bytes(p.device_bound), format_us(p.step_us),
                          percent(p.step_us / plan.variants.unchanged.step_us)});
  }
  return table;
}

std::string variant_remark(const Plan& plan) {
  const Variants& variants = plan.variants;
  if (variants.built == 0) return "";
  std::string out = std::to_string(variants.built) + " programs were built";
  if (variants.least_memory) {
    const Prediction& p = variants.least_memory->prediction;
    const double missing = p.device_bound - static_cast<double>(plan.budget.device);
    out += "; none fits. Nearest: " +
           (variants.least_memory->changes.empty() ? "the run as it is" : joined(variants.least_memory->changes)) +
           ", " + format_bytes(p.device_bound);
    if (plan.budget.device > 0 && missing > 0) out += ", " + format_bytes(missing) + " too much";
  } else {
    out += " and those that fit simulated; they change no number. strategy.auto=true takes the first";
  }
  for (const Variant& variant : variants.with_other_results) {
    const Prediction& p = variant.prediction;
    out += ". " + variant.changes.at(0) + " alone " + (plan.budget.holds(p) ? "fits" : "does not fit") + ": " +
           format_bytes(p.device_bound) + ", " + format_us(p.step_us) + ", but " + std::string(variant.result_change);
  }
  return out;
}

std::string search_remark(const Plan& plan) {
  if (plan.not_looked_at.empty()) return "";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", plan.search_seconds);
  std::string out = "the search stopped after " + std::string(seconds) + " s (--seconds) and did not look at";
  for (size_t i = 0; i < plan.not_looked_at.size(); ++i) out += (i == 0 ? " " : "; ") + plan.not_looked_at[i];
  return out;
}

std::string nothing_fits(const Plan& plan) {
  std::string out = "nothing that was tried makes it fit";
  if (const auto beyond = beyond_equations(plan.run, plan.prediction.layout))
    out += "; no equation covers " + beyond->setting + ", so no other layout that has it was tried";
  return out + ": ask for more --ranks or a larger budget";
}

draw::Table suggestion_rows(const Plan& plan) {
  draw::Table table{{{"change"},
                     {"ranks", true},
                     {"device", true},
                     {"host", true},
                     {"step", true},
                     {"device-seconds", true},
                     {"in this version"}},
                    {}};
  for (const Suggestion& suggestion : plan.suggestions) {
    char cost[32];
    std::snprintf(cost, sizeof cost, "%.3g", suggestion.prediction.step_us * suggestion.ranks / 1e6);
    const double host = suggestion.prediction.host.total();
    table.rows.push_back({suggestion.changes.empty() ? "more ranks" : joined(suggestion.changes),
                          std::to_string(suggestion.ranks), format_bytes(suggestion.prediction.device_bound),
                          host > 0 ? format_bytes(host) : "-", format_us(suggestion.prediction.step_us), cost,
                          suggestion.unsupported.empty() ? "yes" : "not yet"});
  }
  return table;
}

}  // namespace herd::planner
