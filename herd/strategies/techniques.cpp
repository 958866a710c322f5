#include "herd/strategies/techniques.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/strategies/activation_offload.h"
#include "herd/strategies/compression.h"
#include "herd/strategies/context_parallel.h"
#include "herd/strategies/data_parallel.h"
#include "herd/strategies/delayed_update.h"
#include "herd/strategies/direct_host.h"
#include "herd/strategies/expert_parallel.h"
#include "herd/strategies/gather_codec.h"
#include "herd/strategies/gradient_clipping.h"
#include "herd/strategies/gradients_in_files.h"
#include "herd/strategies/host_states.h"
#include "herd/strategies/interleave.h"
#include "herd/strategies/layer_major.h"
#include "herd/strategies/layer_owners.h"
#include "herd/strategies/micro_batches.h"
#include "herd/strategies/pipeline_parallel.h"
#include "herd/strategies/precision.h"
#include "herd/strategies/priority.h"
#include "herd/strategies/recompute.h"
#include "herd/strategies/replicas.h"
#include "herd/strategies/secondary_shard.h"
#include "herd/strategies/server_sync.h"
#include "herd/strategies/shared_groups.h"
#include "herd/strategies/split_backward.h"
#include "herd/strategies/tensor_parallel.h"
#include "herd/strategies/values_in_files.h"
#include "herd/strategies/weight_window.h"
#include "herd/strategies/zero1.h"
#include "herd/strategies/zero2.h"
#include "herd/strategies/zero3.h"

namespace herd::strategies {
namespace {

// Returns the row of what the plain step does without a rewrite.
Technique plain_row() { return {.name = "plain step", .supports = {{"strategy.auto", {}}}, .in_equations = true}; }

std::vector<Technique>& table() {
  static std::vector<Technique> rows = {
      plain_row(),
      precision_row(),
      micro_batches_row(),
      split_backward_row(),
      pipeline_parallel_row(),
      recompute_row(),
      tensor_parallel_row(),
      context_parallel_row(),
      expert_parallel_row(),
      interleave_row(),
      layer_major_row(),
      data_parallel_row(),
      zero1_row(),
      zero2_row(),
      zero3_row(),
      layer_owners_row(),
      secondary_shard_row(),
      replicas_row(),
      server_sync_row(),
      compression_row(),
      tied_groups_row(),
      sequence_parallel_groups_row(),
      copied_groups_row(),
      gradient_clipping_row(),
      priority_row(),
      host_states_row(),
      delayed_update_row(),
      weight_window_row(),
      direct_host_row(),
      gradients_in_files_row(),
      values_in_files_row(),
      gather_codec_row(),
      activation_offload_row(),
  };
  return rows;
}

template <class Predicate>
std::vector<spec::SupportedValues> supported_by(const Predicate& is_included) {
  std::vector<spec::SupportedValues> out;
  for (const Technique& row : techniques()) {
    if (is_included(row)) out.insert(out.end(), row.supports.begin(), row.supports.end());
  }
  return out;
}

// Returns the first setting of [mesh] or [strategy] that is neither a default nor listed.
std::optional<spec::Unsupported> unlisted(const spec::RunFile& run, const std::vector<spec::SupportedValues>& listed) {
  for (const spec::Key& key : spec::run_keys()) {
    if (key.section != "mesh" && key.section != "strategy") continue;
    const std::string name = key.full_name();
    spec::SupportedValues allowed{name, {value_of(key, spec::RunFile{})}};
    bool any_value = false;
    for (const spec::SupportedValues& supported : listed) {
      if (supported.key != name) continue;
      any_value = any_value || supported.values.empty();
      allowed.values.insert(allowed.values.end(), supported.values.begin(), supported.values.end());
    }
    if (any_value) continue;
    if (auto refused = unsupported(run, allowed)) return refused;
  }
  return std::nullopt;
}

auto row_named(std::string_view name) { return std::ranges::find(table(), name, &Technique::name); }

}  // namespace

const std::vector<Technique>& techniques() { return table(); }

AddedTechnique::AddedTechnique(Technique row, std::string_view after) : name_(row.name) {
  if (row_named(name_) != table().end())
    throw Error(Code::kBadConfig, "there is a technique \"" + std::string(name_) + "\"\n  fix: another name");
  const auto predecessor = row_named(after);
  if (predecessor == table().end()) {
    std::string names;
    for (const Technique& technique : table()) names += (names.empty() ? "" : ", ") + std::string(technique.name);
    throw Error(Code::kBadConfig, "there is no technique \"" + std::string(after) + "\"\n  fix: one of " + names);
  }
  table().insert(predecessor + 1, std::move(row));
}

AddedTechnique::~AddedTechnique() { table().erase(row_named(name_)); }

std::optional<spec::Unsupported> first_unsupported_setting(const spec::RunFile& run) {
  if (auto refused = unlisted(run, supported_by([](const Technique&) { return true; }))) return refused;
  return unsupported_with_expert_ranks(run);
}

std::optional<spec::Unsupported> first_setting_without_equations(const spec::RunFile& run,
                                                                 const std::vector<spec::SupportedValues>& also_known) {
  std::vector<spec::SupportedValues> known = supported_by([](const Technique& row) { return row.in_equations; });
  known.insert(known.end(), also_known.begin(), also_known.end());
  return unlisted(run, known);
}

std::string not_supported(const spec::RunFile& run) {
  auto refused = spec::unsupported_model_or_transport(run);
  if (!refused) refused = first_unsupported_setting(run);
  return refused ? refused->message() : "";
}

std::map<std::string, std::string> refused_values() {
  std::map<std::string, std::string> out;
  for (const spec::Key& key : spec::run_keys()) {
    const auto refuses = [&](const spec::KeyValue& value) {
      spec::RunFile run;
      set_value(key, run, value);
      auto refused = spec::unsupported_model_or_transport(run);
      if (!refused) refused = first_unsupported_setting(run);
      return refused && refused->setting.starts_with(key.full_name() + " ");
    };
    std::string& values = out[key.full_name()];
    for (const std::string_view choice : key.choices) {
      if (key.full_name() == "model.kind" && choice == "chain") continue;  // a program with the blocks trains it
      const std::string value = choice == "every:K" ? "every:2" : std::string(choice);
      if (refuses(value)) values += (values.empty() ? "" : ", ") + std::string(choice);
    }
    if (key.section == "mesh" && refuses(int64_t{2})) values = "more than 1";
    if (values.empty()) out.erase(key.full_name());
  }
  return out;
}

spec::Layout trainable_layout(const spec::RunFile& run, int world_size) {
  const std::string refused = not_supported(run);
  if (!refused.empty()) throw Error(Code::kBadConfig, refused);
  return spec::resolve_mesh(run, world_size);
}

}  // namespace herd::strategies
