#include "herd/spec/changed_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "other_value.h"
#include "tests/support/expect_error.h"

namespace herd::spec {
namespace {

using testing::HasSubstr;

RunFile parse(const std::vector<std::string>& overrides) { return parse_run_text("", "run.toml", overrides); }

std::vector<ChangedKey> changes(const std::vector<std::string>& before, const std::vector<std::string>& now) {
  return changed_keys(parse(before), parse(now));
}

template <class Field>
concept KeyWithoutEffect = requires(Field field) {
  Key{"section", "name", field};
};
static_assert(!KeyWithoutEffect<IntegerField> && !KeyWithoutEffect<TextField>, "a key states what depends on it");

TEST(ChangedKeys, AreEachRefusedOrSaidOrHarmless_AsTheKeySays) {
  for (const Key& key : run_keys()) {
    RunFile before = parse({}), now = before;
    if (key.full_name() == "strategy.auto") before.strategy.automatic = true;  // now the layout is stated
    set_other_value(key, now);
    if (key.full_name() == "strategy.auto") now.strategy.automatic = false;
    SCOPED_TRACE(key.full_name() + " " + value_toml(key, before) + " -> " + value_toml(key, now));
    const auto changed = changed_keys(before, now);
    ASSERT_EQ(changed.size(), 1u);
    EXPECT_EQ(changed[0].key, &key);
    if (on_resume(key.effect) == "refused") {
      EXPECT_ERROR(check_goes_on(changed, "runs/a/step-3"), Code::kBadConfig, "runs/a/step-3",
                   key.full_name() + ": " + value_toml(key, before) + " in the checkpoint, " + value_toml(key, now) +
                       " in this start",
                   "fix: " + key.full_name() + " = " + value_toml(key, before), "log.name");
    } else {
      EXPECT_NO_THROW(check_goes_on(changed, "runs/a/step-3"));
    }
    if (key.effect == Effect::kTraining || key.effect == Effect::kLayout) {
      EXPECT_EQ(text_of(changed), key.full_name() + " " + value_toml(key, before) + " -> " + value_toml(key, now));
    } else if (key.effect == Effect::kNone || key.effect == Effect::kBeginning) {
      EXPECT_EQ(text_of(changed), "");
    }
    if (key.full_name() == "train.steps") continue;  // so many were not done
    if (key.effect == Effect::kNone) {
      EXPECT_THAT(describe_finished_run(changed, now.train.steps, now), HasSubstr("nothing was written"));
    } else {
      EXPECT_ERROR(describe_finished_run(changed, now.train.steps, now), Code::kBadConfig, key.full_name() + ": ",
                   "fix: ", "log.name = \"run-2\"");
    }
  }
}

TEST(ChangedKeys, ThatComputeAnotherModelNameBothValuesAndTheFix) {
  const auto refusal = [](const std::vector<std::string>& now) -> std::string {
    try {
      check_goes_on(changes({}, now), "c");
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_EQ(refusal({"model.norm_eps=0.5", "train.seed=7", "optimizer.lr=1"}),
            "the checkpoint c was saved with other values of keys that a run keeps for its whole life:\n"
            "  model.norm_eps: 1e-05 in the checkpoint, 0.5 in this start\n"
            "  train.seed: 1 in the checkpoint, 7 in this start\n"
            "  fix: model.norm_eps = 1e-05, train.seed = 1; or a new run, with another log.name");
  EXPECT_THAT(refusal({"train.seed=7"}), HasSubstr("that begins with these weights: model.weights = \"c\""));
  EXPECT_THAT(refusal({"model.heads=6"}), HasSubstr("model.heads: 12 in the checkpoint, 6 in this start"));
  EXPECT_EQ(refusal({"optimizer.lr=1", "mesh.fsdp=2"}), "");
}

TEST(ChangedKeys, AreSaidInOneLine) {
  EXPECT_EQ(text_of(changes({"optimizer.lr=3e-4"}, {"optimizer.lr=1e-4", "train.batch=24", "log.every=5"})),
            "train.batch 12 -> 24, optimizer.lr 3e-04 -> 1e-04");
  EXPECT_EQ(text_of({}), "");
}

TEST(ChangedKeys, AgreeWithWhatIsLeftToHerd) {
  const std::vector<std::string> chosen = {"strategy.zero=2", "strategy.prefetch=3", "train.micro_batch=4"};
  EXPECT_EQ(text_of(changes(chosen, {"strategy.zero=2", "train.micro_batch=4"})), "") << "prefetch is auto";
  EXPECT_EQ(text_of(changes({"device.kind=cpu"}, {})), "") << "what was found is in the run";
  EXPECT_NE(text_of(changes({"device.kind=cpu"}, {"device.kind=cuda"})), "");
  EXPECT_EQ(text_of(changes(chosen, {"strategy.auto=true"})), "");
  EXPECT_EQ(text_of(changes(chosen, {"strategy.auto=true", "optimizer.lr=1"})), "optimizer.lr 3e-04 -> 1.0");
}

TEST(FinishedRun, IsSaid_WithWhatGoesOn) {
  EXPECT_EQ(describe_finished_run({}, 12, parse({"train.steps=12"})),
            "the run in runs/run has done 12 steps, which are all that train.steps asks for: nothing is left to train, "
            "and nothing was written\n  train.steps = 24 to go on with that run, or log.name = \"run-2\" for a run of "
            "its own");
}

TEST(FinishedRun, IsNoRunForOtherKeys) {
  const RunFile now = parse({"train.steps=12", "optimizer.lr=1", "log.every=7"});
  EXPECT_ERROR(describe_finished_run(changed_keys(parse({"train.steps=12"}), now), 12, now), Code::kBadConfig,
               "it trained with other keys than these:\n  optimizer.lr: 3e-04 in the run, 1.0 in this start\n  fix: "
               "train.steps = 24 to go on with that run, or log.name = \"run-2\"");
  const RunFile other = parse({"train.steps=12", "model.heads=6"});
  EXPECT_ERROR(describe_finished_run(changed_keys(parse({"train.steps=12"}), other), 12, other), Code::kBadConfig,
               "model.heads: 12 in the run, 6", "\n  fix: log.name = \"run-2\"");
}

TEST(FinishedRun, HasNotDoneTooManySteps) {
  const RunFile now = parse({"train.steps=5"});
  EXPECT_ERROR(describe_finished_run(changed_keys(parse({"train.steps=12"}), now), 12, now), Code::kBadConfig,
               "has done 12 steps, more than train.steps = 5", "fix: train.steps = 24 to go on");
  EXPECT_ERROR(describe_finished_run({}, 12, now), Code::kBadConfig, "more than train.steps = 5");
}

}  // namespace
}  // namespace herd::spec
