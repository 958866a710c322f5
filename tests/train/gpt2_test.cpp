// GPT-2 out to Hugging Face's format and in from it: the same logits as plain PyTorch, and as transformers where that
// is installed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>

#include "against_python.h"
#include "herd/data/tokenizer.h"
#include "herd/storage/checkpoint_folder.h"

namespace herd::train {
namespace {

using testing::HasSubstr;

class Gpt2 : public AgainstPython, public testing::WithParamInterface<std::tuple<const char*, const char*>> {
 protected:
  Gpt2() : AgainstPython("gpt2_logits.py") {}
  void SetUp() override { need(std::get<0>(GetParam())); }
};

TEST_P(Gpt2, GivesHerdsLogits_WhenExported) {
  const auto& [by, tied] = GetParam();
  RunFolder folder;
  const Ended run = folder.train("run", 2,
                                 {"train.steps=3", "strategy.zero=3", "optimizer.lr=0.05", "train.eval_every=0",
                                  std::string("model.tie_embeddings=") + tied});
  ASSERT_EQ(run.status, 0) << run.output;
  const Ended done =
      herd(folder, {"checkpoint", "convert", folder.root / "run", "--to", "gpt2", "--out", folder.root / "gpt2"});
  ASSERT_EQ(done.status, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("no optimizer states, no tokenizer"));
  expect_same_logits(by, folder.root / "gpt2", folder.root / "run/checkpoints" / checkpoint_folder_name(3));
}

TEST_P(Gpt2, GivesTheSameLogitsInHerd_WhenImported) {
  const auto& [by, tied] = GetParam();
  RunFolder folder;
  fs::create_directory(folder.root / "gpt2");
  ASSERT_TRUE(python(std::string("make ") + by + " " + (folder.root / "gpt2").string() + " " + tied));
  const Ended done =
      herd(folder, {"checkpoint", "convert", folder.root / "gpt2", "--to", "herd", "--out", folder.root / "herd"});
  ASSERT_EQ(done.status, 0) << done.output;
  expect_same_logits(by, folder.root / "gpt2", folder.root / "herd");

  const at::Tensor next = herd_logits(folder.root / "herd")[0][kLength - 1];
  std::string ids;
  for (int64_t i = 0; i < kLength; ++i) ids += (i ? "," : "") + std::to_string(some_ids(97)[i].item<int64_t>());
  const Ended text =
      herd(folder, {"generate", folder.root / "herd", "--ids", ids, "--tokens", "1", "--temperature", "0"});
  EXPECT_EQ(text.status, 0) << text.output;
  std::replace(ids.begin(), ids.end(), ',', ' ');
  EXPECT_EQ(text.output, ids + " " + std::to_string(next.argmax().item<int64_t>()) + "\n");
  const Ended words = herd(folder, {"generate", folder.root / "herd", "--prompt", "Once"});
  EXPECT_EQ(words.status, 2);
  EXPECT_THAT(words.output,
              testing::AllOf(HasSubstr("the tokenizer of this checkpoint is not herd's"), HasSubstr("--ids")));
}

TEST_P(Gpt2, GivesHerdsIdsByTransformers_WhereTheTokenizerIsHerds) {
  const auto& [by, tied] = GetParam();
  if (by != std::string("transformers")) GTEST_SKIP() << "plain PyTorch has no tokenizers";
  RunFolder folder;
  std::string text = "  two  spaces\n\n after\ttabs\nünïcode 日本語 😀\r\n";
  for (int i = 0; i < 300; ++i) text += "verse " + std::to_string(i * i) + " of the shepherd, and his flock;\n";
  std::ofstream(folder.root / "text.txt") << text;
  const fs::path data = folder.root / "data", gpt2 = folder.root / "gpt2";
  ASSERT_EQ(herd(folder, {"tokenize", folder.root / "text.txt", "--vocab", "400", "--out", data}).status, 0);
  const Ended run = folder.train("run", 1,
                                 {"train.steps=1", "train.eval_every=0", "model.vocab=400", "data.kind=tokens",
                                  "data.path=" + data.string(), std::string("model.tie_embeddings=") + tied});
  ASSERT_EQ(run.status, 0) << run.output;
  ASSERT_EQ(herd(folder, {"checkpoint", "convert", folder.root / "run", "--to", "gpt2", "--out", gpt2}).status, 0);
  fs::copy(folder.root / "text.txt", gpt2 / "text.txt");
  ASSERT_TRUE(python("encode transformers " + gpt2.string()));
  std::istringstream theirs(slurp(gpt2 / "ids.txt"));
  const std::vector<int> ids(std::istream_iterator<int>(theirs), {});
  EXPECT_EQ(ids, Tokenizer::load(data / "tokenizer.model").encode(text));
  EXPECT_EQ(slurp(gpt2 / "back.txt"), text);
}

// The folder's config.json with other ends of text.
void set_ends(const fs::path& folder, const std::string& ids) {
  std::string config = slurp(folder / "config.json");
  if (const size_t at = config.find("\"eos_token_id\""); at != config.npos)
    config.replace(at, config.find_first_of(",}", at) - at, "\"old\": 0");
  std::ofstream(folder / "config.json") << config.substr(0, config.rfind('}')) << ", \"eos_token_id\": " << ids << "}";
}

TEST_P(Gpt2, StopsAtTheEndOfText_WhichIsTheLastIdWritten) {
  const auto& [by, tied] = GetParam();
  RunFolder folder;
  const fs::path theirs = folder.root / "gpt2";
  fs::create_directory(theirs);
  ASSERT_TRUE(python(std::string("make ") + by + " " + theirs.string() + " " + tied));
  fs::remove(theirs / "generation_config.json");
  const auto generated = [&](const std::string& ends, const std::string& name) {
    set_ends(theirs, ends);
    const Ended done = herd(folder, {"checkpoint", "convert", theirs, "--to", "herd", "--out", folder.root / name});
    EXPECT_EQ(done.status, 0) << done.output;
    std::istringstream text(
        herd(folder, {"generate", folder.root / name, "--ids", "3,1", "--tokens", "12", "--temperature", "0"}).output);
    return std::vector<int>(std::istream_iterator<int>(text), {});
  };
  const std::vector<int> all = generated("null", "endless");
  ASSERT_EQ(all.size(), 2u + 12);
  EXPECT_EQ(generated("50256", "beyond"), all) << "an id beyond the vocabulary never comes";
  const int end = all[5];
  const auto first = std::find(all.begin() + 2, all.end(), end);
  EXPECT_EQ(generated("[96," + std::to_string(end) + "]", "list"), std::vector<int>(all.begin(), first + 1));
}

INSTANTIATE_TEST_SUITE_P(By, Gpt2,
                         testing::Combine(testing::Values("torch", "transformers"), testing::Values("true", "false")),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) +
                                  (std::get<1>(one.param) == std::string("true") ? "_Tied" : "_Untied");
                         });

}  // namespace
}  // namespace herd::train
