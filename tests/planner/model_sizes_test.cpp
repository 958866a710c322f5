#include "herd/planner/model_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "herd/spec/build_model_table.h"

namespace herd::planner {
namespace {

TEST(ModelSizes, AreThoseOfTheLectures_AndOursRoundToThem) {
  const double published_gb[] = {5.12, 24, 275.2, 2800};
  // Lectures round BERT-Large's 0.335 B down to 0.32 B, GPT-2's 1.56 B to 1.5 B.
  const double rounding[] = {0.06, 0.04, 0.004, 0.003};
  std::vector<int64_t> exact;
  for (size_t i = 0; i < published_sizes().size(); ++i) {
    const PublishedSize& size = published_sizes()[i];
    EXPECT_DOUBLE_EQ(size.bytes() / 1e9, published_gb[i]);
    const spec::RunFile run = spec::parse_run_file(std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/" +
                                                   std::string(size.preset) + ".toml");
    exact.push_back(spec::model_table(run, 1).parameters());
    EXPECT_NEAR(static_cast<double>(exact.back()), size.parameters, rounding[i] * size.parameters) << size.name;
  }
  const std::string text = model_sizes_text(exact);
  EXPECT_THAT(text, testing::ContainsRegex("BERT-Large +0.32 B +5.12 GB +bert-large +33[0-9]{7} +5.3[0-9]+ GB\n"));
  EXPECT_THAT(text, testing::ContainsRegex("GPT-3 +175 B +2800 GB +gpt3-175b +17[0-9]{10} +2[0-9.]+ GB\n"));
}

}  // namespace
}  // namespace herd::planner
