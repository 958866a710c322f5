#include "herd/planner/plan_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "herd/base/printable.h"
#include "herd/base/units.h"
#include "herd/planner/paper_formulas_internal.h"
#include "herd/planner/stage_table.h"
#include "herd/planner/tables_internal.h"
#include "herd/spec/compute.h"
#include "herd/strategies/gradient_clipping.h"
#include "herd/strategies/priority.h"

namespace herd::planner {
namespace {

using Json = nlohmann::ordered_json;

Json bytes_json(const TierBytes& tier) {
  return {{"weights", tier.weights},         {"gradients", tier.gradients}, {"states", tier.states},
          {"activations", tier.activations}, {"buffers", tier.buffers},     {"total", tier.total()}};
}

Json prediction_json(const Prediction& p) {
  return {{"method", p.simulated ? "simulated" : "equations"},
          {"why_equations", p.why_equations},
          {"device_bytes", bytes_json(p.device)},
          {"device_bytes_bound", p.device_bound},
          {"host_bytes", bytes_json(p.host)},
          {"nvme_bytes", bytes_json(p.nvme)},
          {"peak_at", p.peak_at},
          {"flops", p.flops},
          {"compute_us", p.compute_us},
          {"step_us", p.step_us},
          {"tokens_per_s", p.tokens_per_s()},
          {"idle_share", p.idle_share},
          {"bytes_sent", p.sent},
          {"host_link_bytes", {{"out", p.host_link_out}, {"in", p.host_link_in}}}};
}

}  // namespace

PaperFormulas Plan::paper_formulas() const {
  return paper_formulas_of(run, prediction.layout, static_cast<double>(prediction.parameters));
}

double Plan::sustained_flops() const {
  if (flops > 0) return flops;
  return spec::training_flops(static_cast<double>(prediction.active), prediction.tokens_per_s()) / ranks;
}

double Plan::devices_needed() const {
  return spec::devices_needed(static_cast<double>(prediction.active), tokens, sustained_flops(), days * 86400);
}

namespace {

// Says that priority cannot shorten the step, and what would let it.
std::string schedule_remark(const Plan& plan) {
  const spec::Layout& layout = plan.prediction.layout;
  if (!strategies::has_priority(plan.run, layout) || !strategies::needs_norm(plan.run, layout)) return "";
  return "strategy.schedule = \"priority\" orders sums alone, since updates wait for the norm of all gradients; "
         "without "
         "one they would not: optimizer.clip=0 health.check_finite=false\n";
}

// Says that AdamW divides by the size of what top-k brings late, and with which keys it learns more.
std::string top_k_remark(const spec::RunFile& run) {
  if (run.strategy.compression != "topk" || run.optimizer.kind != "adamw" || run.strategy.compression_warmup > 0)
    return "";
  const std::string steps = std::to_string(std::max<int64_t>(1, run.train.steps / 5));
  return "strategy.compression = \"topk\" learns slower with AdamW, which divides by the size of what comes late and "
         "at "
         "once; less so after steps without compression and with a second moment of more steps: "
         "strategy.compression_warmup=" +
         steps + " optimizer.betas=[0.9,0.99]\n";
}

}  // namespace

std::string equations_text(const Plan& plan) {
  std::string out = "by published equations\n";
  for (const auto& [title, table] : paper_tables(plan.paper_formulas()))
    out += "\n" + title + "\n" + draw::text_table(table);
  return out;
}

std::string plan_text(const Plan& plan) {
  std::string out = headline(plan) + "\n" + spec::summary(plan.prediction.layout) +
                    "\nmachine: " + printable(plan.cluster.name) +
                    (plan.automatic_choice.empty() ? "" : "\n" + plan.automatic_choice) + "\n\n" +
                    draw::text_table(memory_rows(plan)) + verdict(plan) + "\n\n";
  draw::Table costs{{{"of a step"}, {""}}, {}};
  for (const auto& [name, value] : cost_rows(plan)) costs.rows.push_back({name, value});
  out += draw::text_table(costs) + "predicted " + method(plan) + "\n" + schedule_remark(plan) + top_k_remark(plan.run) +
         whole_backward_remark(plan.run, plan.prediction.layout);
  const std::string stopped = plan.not_looked_at.empty() ? "" : "\n" + search_remark(plan) + "\n";
  if (plan.fits()) return out + stopped;
  const Variants& variants = plan.variants;
  if (variants.fitting.empty() && variants.by_one_more.empty() && plan.suggestions.empty())
    out += "\n" + nothing_fits(plan) + "\n";
  else
    out += "\nwhat would make it fit, cheapest first:\n";
  if (!variants.fitting.empty()) out += draw::text_table(variant_rows(plan, variants.fitting));
  if (variants.built > 0) out += variant_remark(plan) + "\n";
  if (!variants.by_one_more.empty())
    out += "\nwith one more technique, by its program:\n" + draw::text_table(variant_rows(plan, variants.by_one_more));
  if (!plan.suggestions.empty())
    out += (variants.built > 0 ? "\nor, by equations:\n" : "") + draw::text_table(suggestion_rows(plan));
  return out + stopped;
}

std::string plan_json(const Plan& plan) {
  Json out = {{"plan", 1},
              {"name", plan.name},
              {"kind", plan.run.model.kind},
              {"parameters", plan.prediction.parameters},
              {"frozen_parameters", plan.prediction.frozen},
              {"active_parameters", plan.prediction.active},
              {"precision", plan.run.strategy.precision},
              {"gradient_precision", plan.run.strategy.gradient_precision},
              {"ranks", plan.ranks},
              {"layout", spec::summary(plan.prediction.layout)},
              {"machine", plan.cluster.name},
              {"device_budget", plan.budget.device},
              {"host_budget", plan.budget.host},
              {"fits", plan.fits()}};
  out.update(prediction_json(plan.prediction));
  if (plan.fifo_step_us > 0) out["fifo_step_us"] = plan.fifo_step_us;
  if (plan.tokens > 0) {
    out["training_tokens"] = plan.tokens;
    out["training_days"] = plan.tokens / plan.prediction.tokens_per_s() / 86400;
    out["training_flops"] = spec::training_flops(static_cast<double>(plan.prediction.active), plan.tokens);
    if (plan.days > 0) {
      out["days_allowed"] = plan.days;
      out["flops_per_s"] = plan.sustained_flops();
      out["devices_needed"] = plan.devices_needed();
    }
  }
  out["equations"] = paper_json(plan.paper_formulas());
  out["choice"] = plan.automatic_choice;
  for (const auto& [name, variants] : {std::pair("rewrites", &plan.variants.fitting),
                                       std::pair("with_one_more_technique", &plan.variants.by_one_more)}) {
    out[name] = Json::array();
    for (const Variant& variant : *variants) {
      Json entry = {{"changes", variant.changes}};
      entry.update(prediction_json(variant.prediction));
      out[name].push_back(std::move(entry));
    }
  }
  out["programs_built"] = plan.variants.built;
  if (const auto& nearest = plan.variants.least_memory) {
    out["nearest"] = {{"changes", nearest->changes}, {"device_bytes_bound", nearest->prediction.device_bound}};
  }
  out["not_looked_at"] = plan.not_looked_at;
  out["remedies"] = Json::array();
  for (const Suggestion& suggestion : plan.suggestions) {
    Json entry = {{"changes", suggestion.changes}, {"ranks", suggestion.ranks}, {"not_built", suggestion.unsupported}};
    entry.update(prediction_json(suggestion.prediction));
    out["remedies"].push_back(std::move(entry));
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace herd::planner
