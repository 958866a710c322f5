#include "herd/strategies/direct_host.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "herd/base/error.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/spec/frozen.h"
#include "herd/spec/nearest_name.h"
#include "herd/strategies/each_pass.h"
#include "herd/strategies/weight_window.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Op;
using program::Tier;
using program::Value;

std::string DirectHost::name() const { return std::to_string(blocks_.size()) + " blocks read on the host"; }

program::Program DirectHost::rewrite(program::Program step) const {
  std::set<Value> fetched;
  for (Op& op : step.ops) {
    if (!is_pass(op)) continue;
    for (Value& value : op.reads) {
      if (!is_whole_weight(value)) continue;
      if (blocks_.contains(op.block))
        value = in_tier(value, Tier::kHost);
      else
        fetched.insert(value);
    }
  }
  std::erase_if(step.values,
                [&](const auto& entry) { return is_whole_weight(entry.first) && !fetched.contains(entry.first); });
  return with_fetches(std::move(step), layers_);
}

std::set<int> direct_blocks(const spec::RunFile& run, const spec::ModelTable& model) {
  std::set<int> out;
  const std::string& patterns = run.strategy.direct_host;
  if (patterns == "none" || patterns == "auto") return out;
  std::istringstream words(patterns);
  for (std::string pattern; words >> pattern;) {
    std::vector<std::string> names;
    bool found = false;
    for (size_t b = 0; b < model.blocks.size(); ++b) {
      names.push_back(model.blocks[b].name);
      const bool names_layer = model.blocks[b].name.starts_with(pattern + ".");  // of which it is a part
      if (!names_layer && !spec::matches_any(pattern, model.blocks[b].name)) continue;
      found = true;
      out.insert(static_cast<int>(b));
    }
    if (found) continue;
    throw Error(Code::kBadConfig, "strategy.direct_host = \"" + patterns + "\": \"" + pattern +
                                      "\" names no block of the model\n  fix: a name like \"" + names.front() +
                                      "\" or \"" + names.back() + "\", or a pattern like \"h.*\"");
  }
  return out;
}

Technique direct_host_row() {
  return {.name = "direct host access",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            std::set<int> blocks = direct_blocks(step.run, step.model);
            if (blocks.empty()) return nullptr;
            if (zero_stage(step.run, step.layout) == 3)
              throw Error(Code::kBadConfig, "strategy.direct_host = \"" + step.run.strategy.direct_host +
                                                "\" reads whole weights on the host, which strategy.zero = 3 cuts into "
                                                "shards\n  fix: strategy.zero = 2, or strategy.direct_host = \"none\"");
            return std::make_unique<DirectHost>(std::move(blocks), step.layers);
          },
          .extend_proof = [](const StepContext& step,
                             program::Proof& proof) { proof.direct_blocks = direct_blocks(step.run, step.model); },
          .supports = {{"strategy.direct_host", {}}},
          .adapt =
              [](spec::RunFile& run) {
                if (!has_window(run)) run.strategy.direct_host = "none";
              }};
}

}  // namespace herd::strategies
