#include "herd/spec/foreign_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "herd/base/error.h"
#include "herd/spec/run_file.h"
#include "herd/spec/run_keys.h"

namespace herd::spec {
namespace {

using testing::HasSubstr;

std::string answer_to(const std::string& text, std::vector<std::string> overrides = {}) {
  try {
    parse_run_text(text, "run.toml", overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    return error.what();
  }
  return "accepted";
}

TEST(ForeignKeys, LeadToKeysThatExist_AndAreNoneOfThem) {
  std::set<std::string_view> names, ours;
  for (const Key& key : run_keys()) ours.insert(key.name);
  for (const ForeignKey& row : foreign_keys()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands twice";
    if (!row.key.empty()) {
      EXPECT_NO_THROW(run_key(row.key)) << row.name;
      EXPECT_FALSE(ours.contains(row.name)) << row.name << " is a key of herd";
    } else {
      EXPECT_FALSE(row.note.empty()) << row.name;
    }
  }
}

TEST(ForeignKeys, AreFoundInAnySpelling) {
  EXPECT_EQ(key_for_foreign("--Learning-Rate"), "herd has optimizer.lr");
  EXPECT_EQ(key_for_foreign("warmup_ratio"), "herd has optimizer.warmup_steps (steps: the ratio times train.steps)");
  EXPECT_EQ(key_for_foreign("--tokenizer"), "herd tokenize makes the tokens; data.path is their folder");
  EXPECT_EQ(key_for_foreign("learning_rates"), "");
  EXPECT_EQ(key_for_foreign(""), "");
  EXPECT_EQ(key_for_foreign("--"), "");
}

TEST(ForeignKeys, AreAnsweredWithHerdsKey_WhereverTheyStand) {
  EXPECT_THAT(answer_to("[train]\nlearning_rate = 0.1\n"),
              HasSubstr("train.learning_rate (run.toml, line 2): no such key\n  fix: herd has optimizer.lr"));
  EXPECT_THAT(answer_to("[training]\nnum_epochs = 3\n"), HasSubstr("herd has train.steps (epochs times"));
  EXPECT_THAT(answer_to("hidden_size = 64\n"), HasSubstr("herd has model.width"));
  EXPECT_THAT(answer_to("", {"gradient_accumulation_steps=4"}), HasSubstr("herd has train.batch (herd derives them"));
  EXPECT_THAT(answer_to("", {"mesh.world_size=4"}), HasSubstr("--ranks N"));
}

}  // namespace
}  // namespace herd::spec
