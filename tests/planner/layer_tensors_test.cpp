#include "herd/planner/layer_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace herd::planner {
namespace {

using testing::HasSubstr;

LayerTensors layer_of(const std::string& name, const std::vector<std::string>& overrides, int ranks = 1) {
  const spec::RunFile run = spec::parse_run_file(
      std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/" + name + ".toml", overrides);
  return layer_tensors_of(name, run, spec::resolve_mesh(run, ranks));
}

TEST(LayerTensors, SumToTheTableAndToThePaper) {
  const spec::LayerShape gpt2{.s = 1024, .b = 4, .h = 768, .a = 12};
  const LayerTensors layer = layer_of("gpt2", {"model.dropout=0.1"});
  EXPECT_DOUBLE_EQ(layer.published(), spec::layer_activation_bytes(gpt2));
  const LayerTensors shared = layer_of("gpt2", {"mesh.tp=4"}, 4);
  EXPECT_DOUBLE_EQ(shared.published(), spec::layer_activation_bytes(gpt2, 4, true));
  const spec::RunFile run =
      spec::parse_run_file(std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/gpt2.toml",
                           std::vector<std::string>{"mesh.tp=4"});
  EXPECT_EQ(shared.kept(), static_cast<double>(spec::model_table(run, 4).blocks[1].graph_bytes));
  const LayerTensors again = layer_of("gpt2", {"strategy.recompute=full"});
  EXPECT_DOUBLE_EQ(again.published(), 2.0 * 1024 * 4 * 768);
  EXPECT_EQ(again.kept(), again.published());
}

TEST(LayerTensors, AreWrittenAndDrawn) {
  const std::string text = layer_text(layer_of("gpt2", {"mesh.tp=4"}, 4));
  EXPECT_THAT(text, HasSubstr("b = 4 sequences, h = 768, a = 12 heads, t = 4, sequence parallel"));
  EXPECT_THAT(text, testing::ContainsRegex("\nq and k +4sbh/t +3 MiB +3 MiB\n"));
  EXPECT_THAT(text, HasSubstr("together                       sbh(34/t + 5as/(ht))"));
  EXPECT_THAT(layer_svg(layer_of("gpt2", {})), HasSubstr("q and k: published 12 MiB"));
}

TEST(LayerTensors, AreHerdsAloneForOtherLayers) {
  const std::string text = layer_text(layer_of("llama3-8b", {}));
  EXPECT_THAT(text, testing::AllOf(HasSubstr("gate and its silu"), testing::Not(HasSubstr("published"))));
}

}  // namespace
}  // namespace herd::planner
