// Follows what the last line of a refusal suggests, "fix: ...", until the run is accepted. No suggestion may lead back
// to a run that was refused before.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/planner/gradient_algorithm.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/topology/presets.h"

namespace herd::planner {
namespace {

using Settings = std::map<std::string, std::string>;  // value by key; "ranks" is no key of a run file

// Returns why herd train refuses a run, as far as that is known before its ranks start; empty if it takes it.
std::string refusal(const Settings& settings) {
  std::vector<std::string> overrides;
  int ranks = 1;
  for (const auto& [key, value] : settings) {
    if (key == "ranks")
      ranks = std::stoi(value);
    else
      overrides.push_back(key + "=" + value);
  }
  try {
    const spec::RunFile run = spec::parse_run_text("", "test", overrides);
    const spec::Layout layout = strategies::trainable_layout(run, ranks);
    const spec::ModelTable model = spec::program_table(run, layout.micro_batch);
    check_gradient_algorithm(run, layout, one_host(ranks, 2));
    for (const int rank : strategies::ranks_of_stages(layout)) strategies::compile_step(run, model, layout, rank);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig) << error.message();
    return error.message();
  }
}

std::vector<std::string> split(const std::string& text, const std::string& by) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(by, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + by.size();
  }
  return parts;
}

// Reads "strategy.zero = 0 or 1", "dp 4", "--ranks 8" as a key and the values that it may get; none for other words.
std::pair<std::string, std::vector<std::string>> parse_change(std::string text) {
  std::erase(text, '"');
  const size_t equals = text.find(" = ");
  const auto values = [](const std::string& list) {
    std::vector<std::string> out;
    for (const std::string& value : split(list, " or ")) {
      if (value != "less" && value != "more") out.push_back(value);
    }
    return out;
  };
  if (equals != text.npos && text.find('.') < equals && text.find(' ') == equals)
    return {text.substr(0, equals), values(text.substr(equals + 3))};
  const std::vector<std::string> words = split(text, " ");
  if (words.size() != 2) return {};
  if (words[0] == "--ranks") return {"ranks", {words[1]}};
  return {std::set<std::string>{"dp", "fsdp", "tp", "pp", "cp"}.contains(words[0]) ? "mesh." + words[0] : "",
          {words[1]}};
}

// Returns the runs that a refusal suggests in place of a run.
std::vector<Settings> suggested(const Settings& refused, const std::string& refusal) {
  const std::string mark = "\n  fix: ";
  const size_t at = refusal.rfind(mark);
  EXPECT_NE(at, refusal.npos) << refusal;
  std::vector<Settings> out;
  for (const std::string& alternative : split(refusal.substr(at + mark.size()), ", or ")) {
    std::vector<Settings> changed = {refused};
    const size_t rest = alternative.find(" and every other axis 1");
    if (rest != alternative.npos) {
      for (const char* axis : {"fsdp", "tp", "pp", "cp"}) changed[0]["mesh." + std::string(axis)] = "1";
    }
    bool understood = true;
    for (const std::string& change : split(alternative.substr(0, rest), " with ")) {
      const auto [key, values] = parse_change(change);
      understood = understood && !key.empty();
      std::vector<Settings> next;
      for (const Settings& settings : changed) {
        for (const std::string& value : values) next.push_back(settings), next.back()[key] = value;
      }
      changed = std::move(next);
    }
    if (understood) out.insert(out.end(), changed.begin(), changed.end());
  }
  return out;
}

std::string text_of(const Settings& settings) {
  std::string out;
  for (const auto& [key, value] : settings) out += key + "=" + value + " ";
  return out;
}

// Follows every suggestion of a run, and of the runs that these lead to. `earlier` are the runs on the way here.
void follow(const Settings& settings, std::vector<std::string>& earlier, std::set<std::string>& accepted,
            int& refused) {
  const std::string text = text_of(settings);
  if (accepted.contains(text)) return;
  if (std::ranges::find(earlier, text) != earlier.end()) {
    std::string way;
    for (const std::string& one : earlier) way += "\n  " + one;
    ADD_FAILURE() << "suggestions lead in a circle:" << way << "\n  " << text;
    return;
  }
  const std::string why = refusal(settings);
  refused += why.empty() ? 0 : 1;
  earlier.push_back(text);
  if (!why.empty()) {
    for (const Settings& next : suggested(settings, why)) follow(next, earlier, accepted, refused);
  }
  earlier.pop_back();
  accepted.insert(text);  // or all its suggestions end in accepted runs
}

TEST(SuggestedFixes, EndInARunThatIsAccepted) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> choices = {
      {"ranks", {"1", "2", "3", "4", "6", "8"}},
      {"mesh.dp", {"0", "0", "2", "3", "4", "8"}},
      {"mesh.fsdp", {"1", "1", "2", "4"}},
      {"mesh.tp", {"1", "1", "2", "3", "4", "8"}},
      {"mesh.pp", {"1", "1", "2", "3", "8"}},
      {"mesh.cp", {"1", "1", "1", "2"}},
      {"strategy.zero", {"0", "1", "2", "3"}},
      {"strategy.shard", {"slices", "slices", "layers"}},
      {"strategy.compression", {"none", "none", "bf16", "topk", "int8"}},
      {"strategy.gather_codec", {"none", "none", "int8"}},
      {"strategy.secondary_shard", {"false", "false", "true"}},
      {"mesh.ranks_per_host", {"0", "2"}},
      {"strategy.precision", {"fp32", "bf16"}},
      {"strategy.gradient_precision", {"same", "fp32"}},
      {"strategy.offload", {"none", "none", "states", "nvme"}},
      {"strategy.pipeline", {"1f1b", "gpipe", "interleaved", "zero_bubble_v"}},
      {"strategy.interleave_micro_batches", {"1", "1", "2"}},
      {"strategy.order", {"micro_batch_major", "micro_batch_major", "layer_major"}},
      {"comm.algorithm", {"auto", "ring", "butterfly", "torus_2d", "rign"}},
      {"model.ffn", {"50", "64"}},
      {"model.layers", {"2", "4"}},
  };
  std::mt19937 random(7);
  std::set<std::string> accepted;
  int refused = 0;
  for (int i = 0; i < 2000 && !testing::Test::HasFailure(); ++i) {
    Settings settings = {{"model.heads", "4"},   {"model.width", "16"}, {"model.context", "8"},
                         {"model.vocab", "32"},  {"train.batch", "16"}, {"train.micro_batch", "1"},
                         {"data.kind", "random"}};
    for (const auto& [key, values] : choices) settings[key] = values[random() % values.size()];
    std::vector<std::string> earlier;
    follow(settings, earlier, accepted, refused);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted.size(), 2000u);
}

}  // namespace
}  // namespace herd::planner
