#include "herd/spec/frozen.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/spec/nearest_name.h"

namespace herd::spec {
namespace {

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*') return !name.empty() && name[0] == pattern[0] && matches(pattern.substr(1), name.substr(1));
  for (size_t skipped = 0; skipped <= name.size(); ++skipped) {
    if (matches(pattern.substr(1), name.substr(skipped))) return true;
  }
  return false;
}

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

}  // namespace

void check_patterns(std::string_view key, const std::vector<ParameterGroupShape>& groups, const std::string& patterns) {
  if (patterns == "none") return;
  std::vector<std::string> names;
  for (const auto& group : groups) {
    for (const auto& parameter : group.parameters) names.push_back(parameter.name);
  }
  for (const std::string& pattern : words(patterns)) {
    if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return matches(pattern, name); })) continue;
    constexpr size_t kShown = 4;
    const auto distance = [&](const std::string& name) {  // names with the longest common beginning come first
      const auto alike = std::mismatch(pattern.begin(), pattern.end(), name.begin(), name.end()).first;
      return std::pair(pattern.end() - alike, edit_distance(pattern, name));
    };
    std::stable_sort(names.begin(), names.end(),
                     [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    std::string nearest;
    for (size_t i = 0; i < std::min(kShown, names.size()); ++i) nearest += (i ? ", " : "") + names[i];
    throw Error(Code::kBadConfig,
                std::string(key) + ": \"" + pattern + "\" matches none of the model's " + std::to_string(names.size()) +
                    " parameters\n  fix: a name or a pattern with *; " + "the nearest names are " + nearest);
  }
}

namespace {

// Takes away the work that frozen matrices need no more: 2 FLOP for each token and element, or, of the embedding, the
// bytes that its gradient writes. The head makes its gradients in forward.
void subtract_gradient_work(ModelTable& table, const std::string& patterns) {
  const size_t last = table.blocks.size() - 1;
  const int64_t head_tokens = table.masked_tokens > 0 ? table.micro_batch * table.masked_tokens : table.tokens;
  for (size_t b = 0; b <= last; ++b) {
    BlockShape& block = table.blocks[b];
    for (const int g : block.groups) {
      for (const ParameterShape& parameter : table.groups[static_cast<size_t>(g)].parameters) {
        if (parameter.sizes.size() < 2 || !is_frozen(patterns, parameter.name)) continue;
        const double elements = static_cast<double>(ParameterGroupShape{"", {parameter}}.elements_of_rank(table.tp));
        if (b == 0)
          block.backward.memory_bytes -= elements * static_cast<double>(size_of(table.gradient_dtype));
        else
          (b == last ? block.forward : block.backward).matmul_flops -=
              2 * static_cast<double>(b == last ? head_tokens : table.tokens) * elements * parameter.used;
      }
    }
  }
}

}  // namespace

bool is_frozen(std::string_view patterns, std::string_view parameter) { return matches_any(patterns, parameter); }

bool matches_any(std::string_view patterns, std::string_view parameter) {
  if (patterns == "none") return false;
  const auto all = words(patterns);
  return std::any_of(all.begin(), all.end(), [&](const auto& pattern) { return matches(pattern, parameter); });
}

std::string frozen_group_name(std::string_view group) { return std::string(group) + ".frozen"; }

void freeze(ModelTable& table, const std::string& patterns) {
  if (patterns == "none") return;
  check_patterns("model.frozen", table.groups, patterns);
  subtract_gradient_work(table, patterns);
  std::vector<ParameterGroupShape> groups;
  std::vector<std::vector<int>> new_indices;  // for each old group, its indices among the new ones
  for (ParameterGroupShape& group : table.groups) {
    ParameterGroupShape trained{.name = group.name, .parameters = {}, .of_experts = group.of_experts}, frozen = trained;
    for (ParameterShape& parameter : group.parameters)
      (is_frozen(patterns, parameter.name) ? frozen : trained).parameters.push_back(std::move(parameter));
    frozen.frozen = true;
    if (!trained.parameters.empty()) frozen.name = frozen_group_name(group.name);
    auto& indices = new_indices.emplace_back();
    for (ParameterGroupShape* part : {&trained, &frozen}) {
      if (part->parameters.empty()) continue;
      indices.push_back(static_cast<int>(groups.size()));
      groups.push_back(std::move(*part));
    }
  }
  table.groups = std::move(groups);
  for (BlockShape& block : table.blocks) {
    std::vector<int> block_groups;
    for (const int group : block.groups) {
      const auto& indices = new_indices[static_cast<size_t>(group)];
      block_groups.insert(block_groups.end(), indices.begin(), indices.end());
    }
    block.groups = std::move(block_groups);
  }
  const int first = table.first_trained();
  if (first == static_cast<int>(table.blocks.size())) {
    throw Error(Code::kBadConfig, "model.frozen = \"" + patterns + "\" leaves nothing to train: it matches all of " +
                                      "the model's parameters\n  fix: a pattern less");
  }
  if (first > 0) {  // that block makes its input's gradient, which no block reads
    BlockShape& block = table.blocks[static_cast<size_t>(first)];
    (block.is_loss() ? block.forward : block.backward).scratch_bytes += block.input_bytes;
  }
  for (int b = 0; b < first; ++b) {
    BlockShape& block = table.blocks[static_cast<size_t>(b)];
    block.graph_bytes = 0;
    block.backward = {};
    for (InnerCollective& inner : block.inner) inner.times_backward = 0;
  }
}

}  // namespace herd::spec
