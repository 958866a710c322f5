// What herd checkpoint makes, as herd train takes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>

#include "command.h"
#include "herd/data/tokenizer.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"

namespace herd::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Ended checkpoint(const RunFolder& folder, std::vector<std::string> words) {
  words.insert(words.begin(), {fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "checkpoint"});
  Command command(words, folder.root / "checkpoint.output");
  const int status = command.wait();
  return {status, command.output()};
}

std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::directory_iterator(folder)) contents[entry.path().filename()] = slurp(entry.path());
  return contents;
}

TEST(CheckpointCommand, ReshardsToTheVeryFilesThatTrainingWrites) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"strategy.zero=3"},
        {"strategy.zero=0", "strategy.precision=fp16"},
        {"strategy.zero=1", "strategy.precision=bf16"},
        {"strategy.zero=2", "model.tie_embeddings=false", "optimizer.kind=sgd"}}) {
    RunFolder folder;
    std::vector<std::string> overrides = {"train.steps=1", "train.eval_every=0"};
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    ASSERT_EQ(folder.train("run", 3, overrides).status, 0);
    const std::string one = folder.root / "one", three = folder.root / "three";
    const Ended gathered = checkpoint(folder, {"reshard", folder.root / "run", "--ranks", "1", "--out", one});
    ASSERT_EQ(gathered.status, 0) << gathered.output;
    EXPECT_THAT(gathered.output, HasSubstr("step 1, 1 file as 1 rank saves them"));
    ASSERT_EQ(checkpoint(folder, {"reshard", one, "--ranks", "3", "--out", three}).status, 0);
    EXPECT_EQ(contents_of(three), contents_of(folder.root / "run/checkpoints" / checkpoint_folder_name(1)));
  }
}

TEST(CheckpointCommand, StartsARunWithTheWeightsOfAnother_InAnyLayoutAndPrecision) {
  RunFolder folder;
  ASSERT_EQ(folder.train("first", 1, {"train.steps=6"}).status, 0);
  const double expected = *read_metrics(folder.root / "first/metrics.jsonl").back().val_loss;
  const auto start = [&](const std::string& name, const std::string& weights, std::vector<std::string> more) {
    more.insert(more.end(),
                {"train.steps=1", "optimizer.lr=1e-12", "optimizer.weight_decay=0", "model.weights=" + weights});
    const Ended run = folder.train(name, 2, more);
    EXPECT_EQ(run.status, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("starts with the weights of"));
    return *read_metrics(folder.root / name / "metrics.jsonl").back().val_loss;
  };
  EXPECT_NEAR(start("same", folder.root / "first", {"strategy.zero=3"}), expected, 1e-6 * expected);
  const std::string half = folder.root / "half";
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "first", "--dtype", "bf16", "--out", half}).status, 0);
  const double rounded = start("half", half, {"strategy.zero=1"});
  EXPECT_NE(rounded, expected);
  EXPECT_NEAR(rounded, expected, 1e-2 * expected);
  EXPECT_EQ(start("sixteen", half, {"strategy.zero=2", "strategy.precision=bf16", "optimizer.kind=sgd"}) > 0, true);

  const Ended again = folder.train("same", 1, {"train.steps=2", "model.weights=" + half});
  EXPECT_THAT(again.output, HasSubstr("resumed from")) << "a run's own checkpoint comes first";
}

TEST(CheckpointCommand, KeepsWhoseTokensTheWeightsKnow_ThroughTrainingAndResuming) {
  RunFolder folder;
  const std::string gpt2 = folder.root / "gpt2", herd = folder.root / "herd";
  ASSERT_EQ(folder.train("first", 1, {"train.steps=1", "train.eval_every=0"}).status, 0);
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "first", "--to", "gpt2", "--out", gpt2}).status, 0);
  ASSERT_EQ(checkpoint(folder, {"convert", gpt2, "--to", "herd", "--out", herd}).status, 0);
  const auto notes = read_manifest(herd).notes;
  for (const int steps : {1, 2}) {
    const std::string number = std::to_string(steps);
    ASSERT_EQ(folder.train("on", 2, {"train.steps=" + number, "train.eval_every=0", "model.weights=" + herd}).status,
              0);
    const auto saved = read_manifest(folder.root / "on/checkpoints" / checkpoint_folder_name(steps)).notes;
    for (const char* name : {"tokenizer", "begin_of_text", "end_of_text"}) EXPECT_EQ(saved.at(name), notes.at(name));
  }
}

TEST(CheckpointCommand, SaysWhyARunCanNotStartOrResume) {
  RunFolder folder;
  ASSERT_EQ(folder.train("first", 1, {"train.steps=1", "train.eval_every=0"}).status, 0);
  const std::string weights = folder.root / "weights", gpt2 = folder.root / "gpt2";
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "first", "--out", weights}).status, 0);
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "first", "--to", "gpt2", "--out", gpt2}).status, 0);
  EXPECT_THAT(
      folder.train("a", 2, {"checkpoint.resume=" + weights}).output,
      AllOf(HasSubstr("holds weights alone"), HasSubstr("fix: checkpoint.resume = \"none\" and model.weights = \"")));
  EXPECT_THAT(
      folder.train("c", 2, {"model.weights=" + weights, "model.layers=1", "model.vocab=301"}).output,
      AllOf(HasSubstr("model.layers: 2 in the weights, 1 in this run"),
            HasSubstr("model.vocab: 300 in the weights, 301 in this run"), HasSubstr("fix: leave these keys out")));
  EXPECT_THAT(folder.train("d", 2, {"model.weights=" + weights, "model.heads=1"}).output,
              HasSubstr("model.heads: 2 in the weights, 1 in this run"));
  const Ended longer = folder.train("e", 2, {"model.weights=" + gpt2, "model.context=17"});
  EXPECT_EQ(longer.status, 2);
  EXPECT_THAT(longer.output, AllOf(HasSubstr("model.context = 17 is longer than the 16 positions"),
                                   HasSubstr("fix: model.context = 16 or less")));
  EXPECT_FALSE(fs::exists(folder.root / "e")) << "the weights are checked before any rank starts";
}

// The run file without what it says of the model.
void leave_model_out(const RunFolder& folder) {
  const std::string text = slurp(folder.root / "run.toml");
  std::ofstream(folder.root / "run.toml") << text.substr(text.find("[data]"));
}

TEST(CheckpointCommand, StartsFromAFolderOfTransformers_WhoseModelItTakes) {
  RunFolder folder;
  const std::string gpt2 = folder.root / "gpt2";
  ASSERT_EQ(folder.train("first", 1, {"train.steps=6", "model.layers=3", "model.tie_embeddings=false"}).status, 0);
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "first", "--to", "gpt2", "--out", gpt2}).status, 0);
  const double expected = *read_metrics(folder.root / "first/metrics.jsonl").back().val_loss;
  leave_model_out(folder);
  const auto start = [&](const std::string& name, const std::string& weights, std::vector<std::string> more) {
    more.insert(more.end(), {"train.steps=1", "optimizer.lr=1e-12", "model.weights=" + weights});
    const Ended run = folder.train(name, 2, more);
    EXPECT_EQ(run.status, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("starts with the weights of " + weights));
    return *read_metrics(folder.root / name / "metrics.jsonl").back().val_loss;
  };
  EXPECT_NEAR(start("theirs", gpt2, {"strategy.zero=3"}), expected, 1e-6 * expected);
  EXPECT_NEAR(start("bf16", gpt2, {"strategy.precision=bf16"}), expected, 1e-2 * expected);
  EXPECT_NEAR(start("own", folder.root / "first", {}), expected, 1e-6 * expected);
  const std::string resolved = slurp(folder.root / "theirs/config.toml");
  for (const char* line : {"layers = 3\n", "width = 32\n", "heads = 2\n", "ffn = 128\n", "context = 16\n",
                           "vocab = 300\n", "tie_embeddings = false\n"})
    EXPECT_THAT(resolved, HasSubstr(line));
  EXPECT_THAT(slurp(folder.root / "own/config.toml"),
              HasSubstr("weights = \"" + (folder.root / "first/checkpoints").string() + "/step-00000006\""));

  const Ended shorter = folder.train("short", 2, {"train.steps=1", "model.weights=" + gpt2, "model.context=7"});
  EXPECT_EQ(shorter.status, 0) << shorter.output;
  fs::remove_all(gpt2);
  const Ended on = folder.train("short", 1, {"train.steps=2", "model.weights=" + gpt2});
  EXPECT_EQ(on.status, 0) << on.output;
  EXPECT_THAT(on.output, HasSubstr("resumed from")) << "a run that goes on needs its first weights no more";
  EXPECT_THAT(slurp(folder.root / "short/config.toml"), HasSubstr("context = 7\n"));
}

TEST(CheckpointCommand, KeepsTheTokenizerOfTheWeights_ThroughTrainingResumingAndExport) {
  RunFolder folder;
  const fs::path gpt2 = folder.root / "gpt2";
  ASSERT_EQ(folder.train("first", 1, {"train.steps=1", "train.eval_every=0"}).status, 0);
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "first", "--to", "gpt2", "--out", gpt2}).status, 0);
  std::ofstream(gpt2 / "tokenizer.json") << "{\"theirs\": 1}";
  std::ofstream(gpt2 / "generation_config.json") << "{\"eos_token_id\": 7}";
  for (const char* steps : {"1", "2"}) {
    const Ended run = folder.train(
        "on", 2, {std::string("train.steps=") + steps, "train.eval_every=0", "model.weights=" + gpt2.string()});
    ASSERT_EQ(run.status, 0) << run.output;
    if (fs::exists(gpt2)) fs::remove_all(gpt2);
  }
  const Ended out = checkpoint(folder, {"convert", folder.root / "on", "--to", "gpt2", "--out", folder.root / "tuned"});
  ASSERT_EQ(out.status, 0) << out.output;
  EXPECT_THAT(out.output, HasSubstr("with generation_config.json, tokenizer.json"));
  EXPECT_EQ(slurp(folder.root / "tuned/tokenizer.json"), "{\"theirs\": 1}");
  EXPECT_EQ(slurp(folder.root / "tuned/generation_config.json"), "{\"eos_token_id\": 7}");
}

Ended herd(const RunFolder& folder, std::vector<std::string> words) {
  words.insert(words.begin(), fs::path(std::getenv("HERD_BINARY_DIR")) / "herd");
  Command command(words, folder.root / "herd.output");
  const int status = command.wait();
  return {status, command.output()};
}

TEST(CheckpointCommand, CarriesTheTokenizerOfItsData_WhichGeneratesAndGoesToTransformersAndBack) {
  RunFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "verse " + std::to_string(i) + " of a text about a herd\n";
  std::ofstream(folder.root / "text.txt") << text;
  const fs::path data = folder.root / "data", half = folder.root / "half", gpt2 = folder.root / "gpt2";
  ASSERT_EQ(herd(folder, {"tokenize", folder.root / "text.txt", "--vocab", "300", "--out", data}).status, 0);
  fs::permissions(data / "tokenizer.model", fs::perms::owner_read | fs::perms::owner_write);
  const Ended run =
      folder.train("run", 2, {"train.steps=1", "train.eval_every=0", "data.kind=tokens", "data.path=" + data.string()});
  ASSERT_EQ(run.status, 0) << run.output;
  const std::string model = slurp(data / "tokenizer.model");
  fs::remove_all(data);  // as if herd generate ran in another directory, with a data.path that is relative
  const fs::path saved = folder.root / "run/checkpoints" / checkpoint_folder_name(1) / "tokenizer.model";
  EXPECT_EQ(slurp(saved), model);
  EXPECT_EQ(fs::status(saved).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "run", "--dtype", "bf16", "--out", half}).status, 0);
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "run", "--to", "gpt2", "--out", gpt2}).status, 0);
  for (const char* name : {"tokenizer.model", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_TRUE(fs::exists(gpt2 / name)) << name;
  const fs::path back = folder.root / "back";
  const Ended taken_back = checkpoint(folder, {"convert", gpt2, "--out", back});
  ASSERT_EQ(taken_back.status, 0) << taken_back.output;
  EXPECT_THAT(taken_back.output, testing::Not(HasSubstr("warning")));
  const Ended on = folder.train("on", 1, {"train.steps=1", "train.eval_every=0", "model.weights=" + gpt2.string()});
  ASSERT_EQ(on.status, 0) << on.output;
  const std::vector<std::string> greedy = {"--prompt", "verse", "--tokens", "3", "--temperature", "0"};
  const auto said = [&](const fs::path& weights) {
    std::vector<std::string> words = {"generate", weights};
    words.insert(words.end(), greedy.begin(), greedy.end());
    const Ended ended = herd(folder, words);
    EXPECT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(ended.output, testing::StartsWith("verse"));
    return ended.output;
  };
  const std::string text_of_run = said(folder.root / "run");
  EXPECT_EQ(said(gpt2), text_of_run);
  EXPECT_EQ(said(back), text_of_run);
  said(half);
  said(folder.root / "on");
  fs::remove(saved);
  const Ended lost = herd(folder, {"generate", folder.root / "run", "--prompt", "verse"});
  EXPECT_EQ(lost.status, 2);
  EXPECT_THAT(lost.output, AllOf(HasSubstr("there is no tokenizer for"), HasSubstr((data / "tokenizer.model").string()),
                                 HasSubstr("fix: --tokenizer")));
  const Ended without = checkpoint(folder, {"convert", folder.root / "run", "--out", folder.root / "without"});
  EXPECT_EQ(without.status, 0) << without.output;
  EXPECT_THAT(without.output, AllOf(HasSubstr("warning: no tokenizer goes along"), HasSubstr(data.string())));
}

TEST(CheckpointCommand, GeneratesWithATokenizerOfLlama_AsLlamaTokenizerEncodes) {
  RunFolder folder;
  const std::string llama = std::string(std::getenv("HERD_SOURCE_DIR")) + "/tests/data/golden/llama_like.model";
  ASSERT_EQ(folder.train("run", 1, {"train.steps=1", "train.eval_every=0", "model.vocab=330"}).status, 0);
  const auto generated = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"generate", folder.root / "run", "--tokens", "5", "--temperature", "0"});
    const Ended text = herd(folder, words);
    EXPECT_EQ(text.status, 0) << text.output;
    return text.output;
  };
  std::istringstream numbers(generated({"--ids", "1,263,291,13,304,262,282,260,281"}));
  const std::vector<int> ids(std::istream_iterator<int>(numbers), {});
  EXPECT_EQ(generated({"--prompt", "the herd\nwas gathered", "--tokenizer", llama}),
            Tokenizer::load(llama).decode(ids) + "\n");
  const Ended bad = herd(folder, {"generate", folder.root / "run", "--prompt", "caf\xE9", "--tokenizer", llama});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.output, AllOf(HasSubstr("--prompt at byte 3: E9 is no UTF-8"), HasSubstr("--replace-bad-bytes")));
  generated({"--prompt", "caf\xE9", "--tokenizer", llama, "--replace-bad-bytes"});

  const fs::path theirs = folder.root / "theirs";
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "run", "--to", "gpt2", "--out", theirs}).status, 0);
  fs::copy(llama, theirs / "tokenizer.model");
  const Ended unnamed = herd(folder, {"generate", theirs, "--prompt", "x"});
  EXPECT_EQ(unnamed.status, 2);
  EXPECT_THAT(unnamed.output, AllOf(HasSubstr("is not herd's"), HasSubstr("or --tokenizer " + theirs.string()),
                                    HasSubstr("to encode as LlamaTokenizer does")));
}

TEST(CheckpointCommand, KnowsTheEndOfTextOfIdsFromElsewhere) {
  RunFolder folder;
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "[" + std::to_string(i) + ",3,4,5]\n";
  std::ofstream(folder.root / "ids.jsonl") << lines;
  const auto notes_after = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> words = {"tokenize", "--ids", folder.root / "ids.jsonl", "--vocab",
                                      "300",      "--out", folder.root / name};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(herd(folder, words).status, 0);
    const Ended run = folder.train(
        "run-" + name, 1,
        {"train.steps=1", "data.kind=tokens", "train.eval_every=0", "data.path=" + (folder.root / name).string()});
    EXPECT_EQ(run.status, 0) << run.output;
    return read_manifest(folder.root / ("run-" + name) / "checkpoints" / checkpoint_folder_name(1)).notes;
  };
  EXPECT_EQ(notes_after("ended", {"--end-of-text", "299"}).at("end_of_text"), "299");
  EXPECT_EQ(notes_after("endless", {}).at("end_of_text"), "none");
  const Ended words = herd(folder, {"generate", folder.root / "run-ended", "--prompt", "x"});
  EXPECT_EQ(words.status, 2);
  EXPECT_THAT(words.output, AllOf(HasSubstr("of the program that wrote the ids in"), HasSubstr("fix: --ids")));
}

TEST(CheckpointCommand, GeneratesFromAFolderOfTransformers) {
  RunFolder folder;
  const std::string gpt2 = folder.root / "gpt2";
  ASSERT_EQ(folder.train("first", 1, {"train.steps=1", "train.eval_every=0"}).status, 0);
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "first", "--to", "gpt2", "--out", gpt2}).status, 0);
  const auto generated = [&](const std::string& weights) {
    Command command({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "generate", weights, "--ids", "5,6", "--tokens",
                     "5", "--temperature", "0"},
                    folder.root / "generated");
    EXPECT_EQ(command.wait(), 0) << command.output();
    return command.output();
  };
  EXPECT_EQ(generated(gpt2), generated(folder.root / "first"));
}

TEST(CheckpointCommand, GenerateChecksItsOptionsBeforeItPrints_AndThatItsTextIsWritten) {
  RunFolder folder;
  ASSERT_EQ(folder.train("run", 1, {"train.steps=1", "train.eval_every=0"}).status, 0);
  const std::string run = folder.root / "run";
  const Ended cold = herd(folder, {"generate", run, "--ids", "5,6", "--temperature", "-1"});
  EXPECT_EQ(cold.status, 2);
  EXPECT_THAT(cold.output,
              AllOf(testing::StartsWith("herd: kBadConfig: temperature -1"), testing::Not(HasSubstr("5 6"))));
  const std::string program = fs::path(std::getenv("HERD_BINARY_DIR")) / "herd";
  for (const std::string& command : {" generate " + run + " --ids 5,6 --tokens 2", " checkpoint inspect " + run}) {
    Command full({"/bin/sh", "-c", program + command + " > /dev/full"}, folder.root / "full");
    EXPECT_EQ(full.wait(), 1) << command;
    EXPECT_THAT(full.output(), HasSubstr("the standard output can't be written")) << command;
  }
}

TEST(CheckpointCommand, OverwritesOnlyWhenAsked_AndAnswersWithStatusTwo) {
  RunFolder folder;
  ASSERT_EQ(folder.train("run", 1, {"train.steps=1", "train.eval_every=0"}).status, 0);
  const std::string out = folder.root / "out";
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "run", "--out", out}).status, 0);
  const Ended taken = checkpoint(folder, {"convert", folder.root / "run", "--out", out, "--to", "gpt2"});
  EXPECT_EQ(taken.status, 2);
  EXPECT_THAT(taken.output, AllOf(HasSubstr("is there already"), HasSubstr("--overwrite")));
  EXPECT_TRUE(fs::exists(folder.root / "out/manifest.json"));
  ASSERT_EQ(checkpoint(folder, {"convert", folder.root / "run", "--out", out, "--to", "gpt2", "--overwrite"}).status,
            0);
  EXPECT_FALSE(fs::exists(folder.root / "out/manifest.json"));
  for (const char* command : {"inspect", "convert", "reshard"})
    EXPECT_THAT(checkpoint(folder, {command, "--help"}).output,
                HasSubstr("herd checkpoint " + std::string(command) + " "));
}

}  // namespace
}  // namespace herd::train
