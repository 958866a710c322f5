#include "herd/data/learned_by_herd.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "herd/data/tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

TEST(LearnedByHerd, TellsHerdsModelsFromOthers_AndFromNoise) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "verse " + std::to_string(i) + " of the shepherd and his flock\n";
  for (const int vocabulary : {300, 400}) {
    Tokenizer::train(text, vocabulary).save(folder / "own.model");
    EXPECT_TRUE(is_learned_by_herd(read_text(folder / "own.model")));
  }
  const std::string own = read_text(folder / "own.model");
  const std::string llama =
      read_text(std::string(std::getenv("HERD_SOURCE_DIR")) + "/tests/data/golden/llama_like.model");
  EXPECT_FALSE(is_learned_by_herd(llama));
  for (const std::string& model : {own, llama}) {
    for (size_t bytes = 0; bytes < model.size() - 100; bytes += 7)
      EXPECT_FALSE(is_learned_by_herd(std::string_view(model).substr(0, bytes))) << bytes;
  }
  EXPECT_FALSE(is_learned_by_herd(std::string(100, '\xff')));
}

}  // namespace
}  // namespace herd
