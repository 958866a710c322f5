#include "herd/data/sample_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "herd/data/token_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

void write_folder(const std::filesystem::path& folder, int count) {
  std::vector<int> ids(static_cast<size_t>(count));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>(i);
  for (const char* name : {"train.tokens", "val.tokens"}) {
    TokenFileWriter writer(folder / name, 1000);
    writer.append(ids);
    writer.commit();
  }
  write_text(folder / "meta.json", R"({"format": "herd-token-folder", "version": 1})");
}

TEST(SampleSource, AnEpochReadsEachTokenOnceAsTarget) {
  TemporaryFolder folder;
  write_folder(folder.path(), 101);
  const auto source = open_tokens(folder.path(), Split::kTrain, 10, 3);
  EXPECT_EQ(source->samples_per_epoch(), 10);
  EXPECT_EQ(source->vocabulary(), 1000);
  std::set<int64_t> targets;
  std::vector<int64_t> ids(11);
  for (int64_t sample = 20; sample < 30; ++sample) {
    source->read(sample, ids);
    for (size_t t = 1; t < ids.size(); ++t) EXPECT_EQ(ids[t], ids[t - 1] + 1);
    targets.insert(ids.begin() + 1, ids.end());
  }
  EXPECT_EQ(targets.size(), 100u);
}

TEST(SampleSource, ValidationReadsTheSameSamplesWhateverTheSeed) {
  TemporaryFolder folder;
  write_folder(folder.path(), 500);
  std::vector<int64_t> a(11), b(11);
  for (int64_t sample = 0; sample < 20; ++sample) {
    open_tokens(folder.path(), Split::kValidation, 10, 1)->read(sample, a);
    open_tokens(folder.path(), Split::kValidation, 10, 2)->read(sample, b);
    EXPECT_EQ(a, b);
  }
}

TEST(SampleSource, TellsWhatIsMissing) {
  TemporaryFolder folder;
  EXPECT_ERROR(open_tokens(folder / "no", Split::kTrain, 10, 1), Code::kBadConfig, "data.path", "train.tokens",
               "herd tokenize");
  write_folder(folder.path(), 10);
  EXPECT_ERROR(open_tokens(folder.path(), Split::kTrain, 10, 1), Code::kBadConfig, "holds 10 tokens", "needs 11",
               "fix: a shorter model.context, or more text");
  EXPECT_ERROR(open_tokens(folder.path(), Split::kValidation, 10, 1), Code::kBadConfig, "val.tokens holds 10 tokens",
               "fix: train.eval_every = 0, a larger herd tokenize --validation, a shorter model.context, or more text");
  std::filesystem::remove(folder / "meta.json");
  EXPECT_ERROR(open_tokens(folder.path(), Split::kTrain, 5, 1), Code::kBadConfig, "no meta.json", "fix:");
  write_text(folder / "meta.json", R"({"format": "herd-token-folder", "version": 2})");
  EXPECT_ERROR(open_tokens(folder.path(), Split::kTrain, 5, 1), Code::kCorruptFile, "meta.json", "version 1");
}

TEST(SampleSource, RandomIdsCoverTheVocabularyAndDependOnSeedAndSample) {
  const auto source = random_samples(17, 100, 1);
  std::vector<int64_t> a(101), b(101);
  source->read(5, a);
  EXPECT_EQ(std::set<int64_t>(a.begin(), a.end()).size(), 17u);
  source->read(6, b);
  EXPECT_NE(a, b);
  random_samples(17, 100, 2)->read(5, b);
  EXPECT_NE(a, b);
  random_samples(17, 100, 1)->read(5, b);
  EXPECT_EQ(a, b);
  random_samples(17, 100, 1)->read(int64_t{1} << 60, b);  // positions of far samples are counted modulo 2^63
  EXPECT_LT(*std::max_element(b.begin(), b.end()), 17);
}

}  // namespace
}  // namespace herd
