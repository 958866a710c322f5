// How config.json states positions, as transformers 4.57.6, 5.0.0 and 5.24.0 read it: the frequencies of their
// LlamaRotaryEmbedding were printed for each of these files.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "herd/convert/llama_names.h"
#include "tests/support/expect_error.h"

namespace herd::convert {
namespace {

using Json = nlohmann::json;

const Json kLinear = {{"rope_type", "linear"}, {"factor", 4.0}};
const Json kLlama3 = {{"rope_type", "llama3"},
                      {"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 64}};

Json with(Json object, const Json& more) {
  object.update(more);
  return object;
}

spec::RunFile::Model model_of(const Json& positions) {
  const Json config = {{"model_type", "llama"},    {"hidden_size", 64},       {"num_hidden_layers", 1},
                       {"num_attention_heads", 4}, {"intermediate_size", 64}, {"vocab_size", 97}};
  return parse_llama_config(with(config, positions).dump(2), "config.json").model;
}

TEST(LlamaPositions, FollowWhatBothVersionsTake) {
  const Json with_theta = with(kLinear, {{"rope_theta", 500.0}});
  struct {
    Json positions;
    std::string scaling;
    double factor, theta;
  } const cases[] = {
      {{{"rope_theta", 500.0}}, "none", 1, 500},
      {{{"rope_scaling", kLinear}, {"rope_theta", 500.0}}, "linear", 4, 500},
      {{{"rope_scaling", with_theta}, {"rope_theta", 500.0}}, "linear", 4, 500},
      // rope_scaling counts, and nothing of rope_parameters beside it
      {{{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500.0}}}, {"rope_scaling", kLinear}},
       "linear",
       4,
       10000},
      {{{"rope_parameters", {{"rope_type", "linear"}, {"factor", 8.0}}}, {"rope_scaling", kLinear}},
       "linear",
       4,
       10000},
      {{{"rope_parameters", kLlama3}, {"rope_scaling", {{"rope_type", "default"}}}}, "none", 1, 10000},
      {{{"rope_parameters", kLlama3}, {"rope_scaling", kLinear}, {"rope_theta", 700}}, "linear", 4, 700},
      // rope_parameters alone
      {{{"rope_parameters", with_theta}}, "linear", 4, 500},
      {{{"rope_parameters", with_theta}, {"rope_scaling", nullptr}, {"rope_theta", 500.0}}, "linear", 4, 500},
      {{{"rope_parameters", with_theta}, {"rope_scaling", Json::object()}}, "linear", 4, 500},
      {{{"rope_parameters", kLinear}, {"rope_theta", 500.0}}, "linear", 4, 500},
      {{{"rope_parameters", nullptr}, {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}, "linear", 4, 10000}};
  for (const auto& [positions, scaling, factor, theta] : cases) {
    const auto model = model_of(positions);
    EXPECT_EQ(model.rope_scaling, scaling) << positions;
    EXPECT_EQ(model.rope_factor, factor) << positions;
    EXPECT_EQ(model.rope_theta, theta) << positions;
  }
}

TEST(LlamaPositions, TakeTheOriginalContextFromInsideOrOutside) {
  Json without = kLlama3;
  without.erase("original_max_position_embeddings");
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    EXPECT_EQ(model_of({{name, kLlama3}}).rope_original_context, 64);
    EXPECT_EQ(model_of({{name, kLlama3}, {"original_max_position_embeddings", 64}}).rope_original_context, 64);
    EXPECT_EQ(model_of({{name, without}, {"original_max_position_embeddings", 32}}).rope_original_context, 32);
    EXPECT_ERROR(model_of({{name, without}}), Code::kCorruptFile, ".original_max_position_embeddings\" must be",
                 "fix:");
    EXPECT_ERROR(model_of({{name, kLlama3}, {"original_max_position_embeddings", 32}}), Code::kBadConfig,
                 name + std::string(".original_max_position_embeddings\" is 64"),
                 "\"original_max_position_embeddings\" is 32",
                 "transformers 4 takes the first, transformers 5 the second", "fix: state in both");
  }
  EXPECT_EQ(model_of({{"rope_scaling", kLinear}, {"original_max_position_embeddings", 32}}).rope_factor, 4)
      << "linear positions have no original context";
}

TEST(LlamaPositions, AreRefusedWhereVersionsDiffer_NamingMembersValuesAndFix) {
  const auto refuse = [](const Json& positions, const std::string& member, const std::string& other) {
    EXPECT_ERROR(model_of(positions), Code::kBadConfig, "config.json, line ", member, other, "transformers 4", "fix: ");
  };
  const Json with_theta = with(kLinear, {{"rope_theta", 500.0}});
  refuse({{"rope_scaling", with_theta}, {"rope_theta", 700.0}}, "\"rope_scaling.rope_theta\" is 500.0",
         "\"rope_theta\" is 700.0");
  refuse({{"rope_scaling", with_theta}}, "\"rope_scaling.rope_theta\" is 500.0",
         "\"rope_theta\" is not stated, which is 10000.0");
  refuse({{"rope_parameters", with_theta}, {"rope_theta", 700.0}}, "\"rope_parameters.rope_theta\" is 500.0",
         "\"rope_theta\" is 700.0");
  refuse({{"rope_scaling", with(kLinear, {{"type", "default"}})}}, "\"rope_scaling.rope_type\" is \"linear\"",
         "\"rope_scaling.type\" is \"default\"");
  EXPECT_ERROR(model_of({{"rope_scaling", {{"factor", 4.0}}}}), Code::kBadConfig,
               "\"rope_scaling.rope_type\" is not stated, but \"rope_scaling.factor\" is 4.0", "fix:");
  EXPECT_ERROR(model_of({{"rope_scaling", "linear"}}), Code::kCorruptFile, "\"rope_scaling\" is \"linear\"", "fix:");
}

}  // namespace
}  // namespace herd::convert
