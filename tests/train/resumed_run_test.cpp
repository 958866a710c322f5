// herd train that goes on with a run file other than that of its checkpoint, or with a run that is finished. Runs drawn
// by chance go on with one changed key: it is refused, or the losses are what the key says (Effect, run_keys.h). Some
// keys by default, all with HERD_FULL_TESTS=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command.h"
#include "herd/data/token_folder.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/manifest.h"
#include "herd/storage/metrics.h"
#include "random_run.h"
#include "tests/spec/other_value.h"

namespace herd::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// All files of a folder but logs and the lock, with the time of their last change.
std::map<std::string, std::pair<std::string, fs::file_time_type>> files_of(const fs::path& folder) {
  std::map<std::string, std::pair<std::string, fs::file_time_type>> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().lexically_relative(folder);
    if (entry.is_regular_file() && path != "lock" && !path.starts_with("logs/"))
      files[path] = {slurp(entry.path()), entry.last_write_time()};
  }
  return files;
}

// Copies a finished run of `steps` steps to another name, without what it did after the step before its last save.
void copy_first_half(const RunFolder& folder, const std::string& from, const std::string& to, int64_t steps) {
  fs::remove_all(folder.root / to);
  fs::copy(folder.root / from, folder.root / to, fs::copy_options::recursive);
  fs::remove_all(folder.root / to / "checkpoints" / checkpoint_folder_name(steps));
}

std::vector<double> losses_of(const fs::path& run) {
  std::vector<double> losses;
  for (const StepMetrics& step : read_metrics(run / "metrics.jsonl")) losses.push_back(step.loss);
  return losses;
}

TEST(ResumedRun, IsRefusedAnotherModelOrOrderOfSamples_AndWritesNothing) {
  RunFolder folder;
  const std::vector<std::string> llama = {"model.kind=llama", "train.eval_every=0"};
  ASSERT_EQ(folder.train("base", 2, llama).status, 0);
  copy_first_half(folder, "base", "run", 12);
  const auto before = files_of(folder.root / "run");
  const std::vector<std::pair<std::string, std::string>> others = {
      {"model.norm_eps=0.5", "model.norm_eps: 1e-05 in the checkpoint, 0.5 in this start"},
      {"model.rope_theta=500", "model.rope_theta: 10000.0 in the checkpoint, 500.0 in this start"},
      {"model.context=12", "model.context: 16 in the checkpoint, 12 in this start"},
      {"model.heads=4", "model.heads: 2 in the checkpoint, 4 in this start"},
      {"train.seed=2", "train.seed: 1 in the checkpoint, 2 in this start"}};
  for (const auto& [override_text, words] : others) {
    std::vector<std::string> overrides = llama;
    overrides.push_back(override_text);
    const Ended ended = folder.train("run", 2, overrides);
    EXPECT_EQ(ended.status, 2) << ended.output;
    EXPECT_THAT(ended.output,
                AllOf(HasSubstr(words), HasSubstr("fix: " + override_text.substr(0, override_text.find('=')) + " = ")))
        << override_text;
    EXPECT_EQ(files_of(folder.root / "run"), before) << override_text;
  }
}

TEST(ResumedRun, SaysInOneLineWhatChanged) {
  RunFolder folder;
  ASSERT_EQ(folder.train("run", 2, {"train.steps=6"}).status, 0);
  const Ended ended = folder.train("run", 1, {"optimizer.lr=1e-3", "log.every=3"});
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(
      ended.output,
      HasSubstr("step-00000006, step 6; changed: train.steps 6 -> 12, optimizer.lr 0.003 -> 0.001, ranks 2 -> 1\n"));
}

TEST(ResumedRun, IsRefusedTokensOfAnotherTokenizer) {
  RunFolder folder;
  for (const auto& [name, vocabulary] : {std::pair("one", 280), {"two", 290}}) {
    std::ofstream text(folder.root / "text");
    for (int i = 0; i < 300; ++i) text << "line " << i << " of " << name << "\n";
    text.close();
    write_token_folder({.files = {folder.root / "text"}, .out = folder.root / name, .vocabulary = vocabulary});
  }
  const auto run = [&](const char* steps, const char* data) {
    return folder.train("run", 1,
                        {std::string("train.steps=") + steps, "data.kind=tokens", "train.eval_every=0",
                         "data.path=" + (folder.root / data).string()});
  };
  ASSERT_EQ(run("6", "one").status, 0);
  const Ended refused = run("12", "two");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("another tokenizer"), HasSubstr("fix: the data.path of that run")));
  fs::rename(folder.root / "one", folder.root / "moved");
  const Ended moved = run("12", "moved");
  EXPECT_EQ(moved.status, 0) << moved.output;
  EXPECT_THAT(moved.output, AllOf(HasSubstr("; changed: data.path "), Not(HasSubstr("tokens ->"))));
}

// Of the launcher, which starts no rank, and of a rank that another launcher starts.
TEST(FinishedRun, EndsAtOnceAndWritesNothing_WhereItIsStartedAgain) {
  RunFolder folder;
  ASSERT_EQ(folder.train("run", 1).status, 0);
  const auto before = files_of(folder.root / "run");
  const std::string log = slurp(folder.root / "run/logs/rank0.log");
  const fs::path programs = std::getenv("HERD_BINARY_DIR");
  for (const bool launched : {true, false}) {
    const auto start = [&](const std::vector<std::string>& more) {
      std::vector<std::string> words = {programs / "herd-trainer", "train", folder.root / "run.toml"};
      if (launched) words = folder.command("run", 1);
      words.insert(words.end(), more.begin(), more.end());
      Command command(words, folder.root / "again.output");
      const int status = command.wait();
      return Ended{status, command.output()};
    };
    for (const std::vector<std::string>& same : {std::vector<std::string>{}, {"log.every=7", "checkpoint.keep=5"}}) {
      const Ended again = start(same);
      EXPECT_EQ(again.status, 0) << again.output;
      EXPECT_THAT(again.output, AllOf(HasSubstr("has done 12 steps"), HasSubstr("nothing is left to train"),
                                      HasSubstr("train.steps = 24"), HasSubstr("log.name = \"run-2\"")));
      EXPECT_THAT(again.output, Not(HasSubstr("predicted")));
    }
    const Ended other = start({"optimizer.lr=1e-3"});
    EXPECT_EQ(other.status, 2) << other.output;
    EXPECT_THAT(other.output, AllOf(HasSubstr("optimizer.lr: 0.003 in the run, 0.001 in this start"),
                                    HasSubstr("fix: train.steps = 24"), HasSubstr("log.name = \"run-2\"")));
    const Ended fewer = start({"train.steps=5"});
    EXPECT_EQ(fewer.status, 2) << fewer.output;
    EXPECT_THAT(fewer.output, HasSubstr("has done 12 steps, more than train.steps = 5"));
    EXPECT_EQ(files_of(folder.root / "run"), before);
  }
  EXPECT_EQ(slurp(folder.root / "run/logs/rank0.log"), log) << "no rank was started";
  const Ended on = folder.train("run", 1, {"train.steps=13"});
  EXPECT_EQ(on.status, 0) << on.output;
  EXPECT_EQ(losses_of(folder.root / "run").size(), 13u);
}

TEST(FinishedRun, IsToldByEveryRank) {
  RunFolder folder;
  ASSERT_EQ(folder.train("run", 2).status, 0);
  // herd run starts ranks without looking at the run file.
  Command again({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "run", "-n", "2", "--",
                 fs::path(std::getenv("HERD_BINARY_DIR")) / "herd-trainer", "train", folder.root / "run.toml"},
                folder.root / "again.output");
  EXPECT_EQ(again.wait(), 0) << again.output();
  EXPECT_THAT(again.output(), HasSubstr("nothing is left to train"));
}

TEST(FinishedRun, WritesWhatIsMissing_WhereItWasKilledAtItsEnd) {
  RunFolder folder;
  ASSERT_EQ(folder.train("run", 1).status, 0);
  const fs::path record = folder.root / "run/run.json", report = folder.root / "run/report.html";
  std::string text = slurp(record);
  const std::string end = "\"ended_at\": 12";
  ASSERT_NE(text.find(end), text.npos) << text;
  std::ofstream(record) << text.replace(text.find(end), end.size(), "\"ended_at\": 0");
  fs::remove(report);
  const Ended again = folder.train("run", 1);
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_TRUE(fs::exists(report));
  EXPECT_THAT(slurp(record), HasSubstr(end));
}

TEST(FinishedRun, OfAnotherNameLeavesNothingToTrain_WhereARunBeginsWithIt) {
  RunFolder folder;
  ASSERT_EQ(folder.train("run", 1).status, 0);
  const Ended next = folder.train("next", 1, {"checkpoint.resume=" + (folder.root / "run").string()});
  EXPECT_EQ(next.status, 2) << next.output;
  EXPECT_THAT(next.output, AllOf(HasSubstr("leaves nothing to train"), HasSubstr("fix: train.steps = 24")));
}

// A run drawn by chance, of 4 steps, that has saved the second.
class DrawnRun {
 public:
  explicit DrawnRun(uint64_t seed) {
    Combination c{
        .zero = static_cast<int>(seed % 4), .recompute = "none", .precision = "fp32", .ranks = 2, .seed = seed};
    c.kind = seed % 2 == 0 ? "gpt" : "llama";
    run_ = drawn(c);
    if (c.zero == 0) {
      run_.strategy.sync = "all_reduce";  // what servers get is not encoded
      run_.strategy.schedule = "fifo";    // nor what comes by priority
      run_.strategy.compression = seed % 8 == 4 ? "topk" : "int8";
      run_.strategy.compression_ratio = 0.2;
    }
    run_.train.steps = kSteps;
    run_.train.eval_every = 0;
    run_.train.max_minutes = 1000;  // half of it is enough, too
    run_.checkpoint.every = kSteps / 2;
    run_.log.dir = folder_.root;
    run_.log.name = "base";
    std::ofstream(folder_.root / "run.toml") << spec::to_toml(run_);
    const Ended ended = folder_.train("base", 2);
    EXPECT_EQ(ended.status, 0) << ended.output;
    losses_ = losses_of(folder_.root / "base");
  }

  void go_on_with_another(const spec::Key& key) {
    spec::RunFile other = run_;
    spec::set_other_value(key, other);
    const std::string change = key.full_name() + "=" + value_toml(key, other);
    // What was stated before may be what strategy.auto chooses, and what is stated now what device.kind = auto found.
    const bool is_left_to_herd = key.full_name() == "strategy.auto" || key.full_name() == "device.kind";
    SCOPED_TRACE(change + ", run of seed " + std::to_string(run_.train.seed));
    copy_first_half(folder_, "base", "run", kSteps);
    const auto before = files_of(folder_.root / "run");
    const Ended ended = folder_.train("run", 2, {change});
    if (ended.status != 0) {
      EXPECT_EQ(ended.status, 2) << ended.output;
      EXPECT_THAT(ended.output, HasSubstr("fix: "));
      EXPECT_EQ(files_of(folder_.root / "run"), before);
      return;
    }
    if (!is_left_to_herd) {
      EXPECT_NE(on_resume(key.effect), "refused") << ended.output;
      const bool is_said = on_resume(key.effect) == "other losses" || on_resume(key.effect) == "same losses";
      EXPECT_EQ(ended.output.find("changed: " + key.full_name() + " ") != std::string::npos, is_said) << ended.output;
    }
    expect_losses(key);
  }

 private:
  static constexpr int64_t kSteps = 4;

  // Another rate or clip counts from the step after the first on, whose gradient is of the same weights and samples.
  void expect_losses(const spec::Key& key) const {
    const auto found = losses_of(folder_.root / "run");
    const size_t first = kSteps / 2;
    ASSERT_GT(found.size(), first);
    if (on_resume(key.effect) == "other losses") {
      const double within = key.section == "optimizer" || key.full_name() == "train.steps" ? 1e-6 : 0.1;
      EXPECT_NEAR(found[first], losses_[first], within * losses_[first]);
      return;
    }
    ASSERT_EQ(found.size(), losses_.size());
    // In another layout other terms and other blocks of weights are encoded, and what encoding has lost may be left
    // out.
    const bool is_coded = run_.strategy.compression != "none" || run_.strategy.gather_codec != "none";
    const double within = key.effect != spec::Effect::kLayout ? 0 : is_coded ? 0.03 : 2e-6;
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], losses_[i], within * losses_[i]) << "step " << i + 1;
  }

  RunFolder folder_;
  spec::RunFile run_;
  std::vector<double> losses_;
};

TEST(ResumedRun, WithAnotherKeyIsRefused_OrHasTheLossesThatTheKeySays) {
  const bool all = std::getenv("HERD_FULL_TESTS") != nullptr;
  // Gradients of the last one are encoded.
  const std::vector<uint64_t> seeds =
      all ? std::vector<uint64_t>{7001, 7002, 7003, 7004} : std::vector<uint64_t>{7001, 7002, 7004};
  const size_t keys_of_each = all ? 1000 : 5;
  for (const uint64_t seed : seeds) {
    DrawnRun run(seed);
    std::vector<const spec::Key*> keys;
    for (const spec::Key& key : spec::run_keys()) {
      if (key.full_name() != "log.dir" && key.full_name() != "log.name")
        keys.push_back(&key);  // those name another run
    }
    std::mt19937_64 random(seed);
    std::shuffle(keys.begin(), keys.end(), random);
    keys.resize(std::min(keys.size(), keys_of_each));
    for (const spec::Key* key : keys) run.go_on_with_another(*key);
  }
}

}  // namespace
}  // namespace herd::train
