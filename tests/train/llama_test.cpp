// Llama, Qwen and their mixtures of experts out to Hugging Face's format and in from it: the same logits and greedy
// tokens as plain PyTorch, and as transformers where that is installed; an import and an export give the same bits.
#include <gmock/gmock.h>

#include <iterator>

#include "against_python.h"
#include "herd/data/tokenizer.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/safetensors.h"
#include "tests/support/tensor_bytes.h"

namespace herd::train {
namespace {

class Llama : public AgainstPython,
              public testing::WithParamInterface<std::tuple<const char*, const char*, const char*>> {
 protected:
  Llama() : AgainstPython("llama_logits.py") {}
  void SetUp() override { need(std::get<0>(GetParam())); }
};

std::string first_ids(int64_t vocabulary) {
  std::string ids;
  for (int64_t i = 0; i < kLength; ++i) ids += (i ? "," : "") + std::to_string(some_ids(vocabulary)[i].item<int64_t>());
  return ids;
}

// Each tensor of all *.safetensors of a folder: its type, and its bytes.
std::map<std::string, std::pair<std::string, std::string>> tensors_in(const fs::path& folder) {
  std::map<std::string, std::pair<std::string, std::string>> all;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file(entry.path());
    for (const TensorEntry& tensor : file.tensors()) all[tensor.name] = {tensor.type, bytes_of(file, tensor)};
  }
  return all;
}

TEST_P(Llama, GivesHerdsLogitsAndTokens_WhenExported) {
  const auto& [by, tied, format] = GetParam();
  RunFolder folder;
  const std::string of(format);
  const bool has_experts = of == "mixtral" || of == "deepseek" || of.ends_with("_moe");
  const std::string kind = has_experts ? "moe" : "llama";
  std::vector<std::string> overrides = {"train.steps=3",       "strategy.zero=3",
                                        "optimizer.lr=0.05",   "train.eval_every=0",
                                        "model.kind=" + kind,  "model.heads=4",
                                        "model.kv_heads=2",    "model.context=32",
                                        "model.norm_eps=1e-6", "model.rope_scaling=linear",
                                        "model.rope_factor=2", "model.experts=5",
                                        "model.expert_ffn=24", std::string("model.tie_embeddings=") + tied};
  const auto add = [&](bool applies, std::vector<std::string> more) {
    if (applies) overrides.insert(overrides.end(), more.begin(), more.end());
  };
  add(of.starts_with("qwen2"), {"model.qkv_bias=true"});
  add(of.starts_with("qwen3"), {"model.qk_norm=true"});
  add(of == "qwen2_moe" || of == "deepseek", {"model.shared_experts=2", "model.normalize_weights=false"});
  add(of == "qwen2_moe", {"model.shared_gate=true"});
  add(of == "qwen3_moe" || of == "deepseek", {"model.dense_layers=1"});
  const Ended run = folder.train("run", 2, overrides);
  ASSERT_EQ(run.status, 0) << run.output;
  const Ended done =
      herd(folder, {"checkpoint", "convert", folder.root / "run", "--to", format, "--out", folder.root / "llama"});
  ASSERT_EQ(done.status, 0) << done.output;
  const fs::path checkpoint = folder.root / "run/checkpoints" / checkpoint_folder_name(3);
  expect_same_logits(by, folder.root / "llama", checkpoint);
  const Ended text =
      herd(folder, {"generate", checkpoint, "--ids", first_ids(300), "--tokens", "12", "--temperature", "0"});
  EXPECT_EQ(text.output, slurp(folder.root / "llama/greedy.txt").substr(0, text.output.size() - 1) + "\n");
}

TEST_P(Llama, GivesTheSameLogitsTokensAndBits_WhenImported) {
  const auto& [by, tied, format] = GetParam();
  for (const std::string dtype : {"float32", "bfloat16"}) {
    if (dtype == "bfloat16" && by == std::string("torch")) continue;
    RunFolder folder;
    const fs::path theirs = folder.root / "llama", mine = folder.root / "herd", again = folder.root / "again";
    fs::create_directory(theirs);
    ASSERT_TRUE(python(std::string("make ") + by + " " + theirs.string() + " " + tied + " " + dtype + " " + format));
    ASSERT_TRUE(fs::exists(theirs / "model.safetensors.index.json"));
    const std::string precision = dtype == "bfloat16" ? "bf16" : "fp32";
    ASSERT_EQ(herd(folder, {"checkpoint", "convert", theirs, "--to", "herd", "--out", mine}).status, 0);
    const Ended back =
        herd(folder, {"checkpoint", "convert", mine, "--to", format, "--dtype", precision, "--out", again});
    ASSERT_EQ(back.status, 0) << back.output;
    EXPECT_EQ(tensors_in(again), tensors_in(theirs));
    expect_same_logits(by, theirs, mine);
    for (const fs::path& weights : {mine, theirs}) {
      const Ended text =
          herd(folder, {"generate", weights, "--ids", first_ids(97), "--tokens", "12", "--temperature", "0"});
      EXPECT_EQ(text.status, 0) << text.output;
      EXPECT_EQ(text.output.substr(0, text.output.size() - 1),
                slurp(theirs / "greedy.txt").substr(0, text.output.size() - 1));
      EXPECT_GT(text.output.size(), first_ids(97).size() + 1);
    }
  }
}

class LlamaText : public AgainstPython {
 protected:
  LlamaText() : AgainstPython("llama_logits.py") {}
  void SetUp() override { need("sentencepiece"); }
};

TEST_F(LlamaText, HasTheIdsOfSentencepiece_WithABeginOfText) {
  RunFolder folder;
  const fs::path model = folder.root / "tokenizer.model";
  fs::copy(std::string(std::getenv("HERD_SOURCE_DIR")) + "/tests/data/golden/llama_like.model", model);
  std::string text = "  two  spaces\n\n after\ttabs\nünïcode 日本語 😀\r\n<s> 12345\n";
  for (int i = 0; i < 100; ++i) text += "verse " + std::to_string(i * i) + " of the herd,\n  and its year;\n";
  std::ofstream(folder.root / "text.txt") << text;
  ASSERT_TRUE(python("encode sentencepiece " + folder.root.string()));
  std::istringstream theirs(slurp(folder.root / "ids.txt"));
  const std::vector<int> ids(std::istream_iterator<int>(theirs), {});
  EXPECT_EQ(Tokenizer::load(model).encode_prompt(text), ids);
  EXPECT_EQ(Tokenizer::load(model).decode(ids), text);
}

std::string name_of(const testing::TestParamInfo<Llama::ParamType>& one) {
  const auto& [by, tied, format] = one.param;
  return std::string(by) + (tied == std::string("true") ? "_Tied" : "_Untied") +
         (format == std::string("llama") ? "" : "_" + std::string(format));
}

INSTANTIATE_TEST_SUITE_P(By, Llama,
                         testing::Combine(testing::Values("torch", "transformers"), testing::Values("true", "false"),
                                          testing::Values("llama")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    ByMixture, Llama,
    testing::Values(std::tuple("torch", "true", "mixtral"), std::tuple("transformers", "false", "mixtral"),
                    std::tuple("torch", "true", "qwen2_moe"), std::tuple("transformers", "false", "qwen2_moe"),
                    std::tuple("transformers", "true", "qwen3_moe"), std::tuple("torch", "false", "deepseek")),
    name_of);

}  // namespace
}  // namespace herd::train
