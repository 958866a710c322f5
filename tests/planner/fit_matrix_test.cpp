#include "herd/planner/fit_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace herd::planner {
namespace {

using testing::HasSubstr;

// A cluster of hosts with 8 devices, so that kernels compute 16-bit numbers as they are.
Cluster hosts_of_8() {
  Cluster cluster = small_server(16);
  cluster.topology.hosts[0].ranks = 8;
  cluster.device = {.has_own_device = true, .bytes_per_us = 2e6};
  return cluster;
}

spec::RunFile model_file(const std::string& name, std::vector<std::string> overrides = {}) {
  return spec::parse_run_file(std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/" + name + ".toml",
                              overrides);
}

TEST(FitMatrix, HoldsWhatTheProgramsOfTheStagesNeed) {
  const FitMatrix::Row row = fit_row("gpt2", model_file("gpt2"), 8, hosts_of_8());
  for (int stage = 0; stage < 4; ++stage) {
    const std::string zero = "strategy.zero=" + std::to_string(stage);
    const Prediction program = predict(model_file("gpt2", {zero}), 8, hosts_of_8());
    ASSERT_TRUE(program.simulated);
    const double bytes = row.bytes[static_cast<size_t>(stage)];
    EXPECT_NEAR(bytes, program.device_bound, 0.05 * program.device_bound) << stage;
    EXPECT_EQ(row.parameters, program.parameters);
  }
}

TEST(FitMatrix, NamesTheLeastStageThatFits) {
  const FitMatrix::Row row{.model = "made up", .parameters = 1, .bytes = {100, 50, 30, 10}};
  EXPECT_EQ(row.stage_on({"", 100}), 0);
  EXPECT_EQ(row.stage_on({"", 99}), 1);
  EXPECT_EQ(row.stage_on({"", 30}), 2);
  EXPECT_EQ(row.stage_on({"", 29}), 3);
  EXPECT_EQ(row.stage_on({"", 9}), -1);
}

TEST(FitMatrix, IsWrittenAndDrawn) {
  FitMatrix matrix{.ranks = 64, .devices = {{"16GB", 16000000000}, {"80GB", 80000000000}}, .rows = {}};
  for (const char* name : {"gpt2-xl", "gpt3-175b"})
    matrix.rows.push_back(fit_row(name, model_file(name), 64, hosts_of_8()));
  const std::string text = matrix_text(matrix), svg = matrix_svg(matrix);
  EXPECT_THAT(text, HasSubstr("64 ranks with a device each"));
  EXPECT_THAT(text, testing::ContainsRegex("gpt2-xl +1.56 B .* 2 +0\n"));
  EXPECT_THAT(text, testing::ContainsRegex("gpt3-175b +175 B .* - +-\n"));
  EXPECT_THAT(svg, HasSubstr("gpt2-xl on 16GB: ZeRO-2, 13.1 GiB"));
  EXPECT_THAT(svg, HasSubstr("gpt3-175b on 80GB: does not fit, 124 GiB"));
}

TEST(FitMatrix, SaysWhyAModelHasNoSuchLayout) {
  const FitMatrix matrix{.ranks = 6,
                         .devices = {{"80GB", 80000000000}},
                         .rows = {fit_row("gpt2", model_file("gpt2", {"mesh.tp=4"}), 6, hosts_of_8())}};
  EXPECT_EQ(matrix.rows[0].stage_on(matrix.devices[0]), -1);
  EXPECT_THAT(matrix_text(matrix), HasSubstr("gpt2: mesh does not cover the world"));
  EXPECT_THAT(matrix_svg(matrix), HasSubstr("gpt2 on 80GB: does not fit, mesh does not cover the world"));
}

}  // namespace
}  // namespace herd::planner
