#include "herd/train/data_source.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_error.h"

namespace herd::train {
namespace {

spec::RunFile bert(const std::string& keys) {
  return spec::parse_run_text(
      "[model]\nkind = \"bert\"\ncontext = 32\nvocab = 50\nwidth = 12\nheads = 2\n[data]\n"
      "kind = \"random\"\n" +
          keys,
      "test");
}

struct MaskedSample {
  std::vector<int64_t> inputs = std::vector<int64_t>(32), targets = std::vector<int64_t>(32);
};

MaskedSample read(const SampleSource& source, int64_t sample) {
  MaskedSample out;
  SampleRow row{out.inputs, out.targets};
  source.read_row(sample, row);
  return out;
}

TEST(DataSource, HidesTokensOfABert_ByTheFirstOneThatTheDataHasNot) {
  const auto train = open_samples(bert("masked_fraction = 0.25\n"), Split::kTrain);
  EXPECT_EQ(train->targets_of(0), 8);
  int64_t masks = 0;
  for (int64_t sample = 0; sample < 50; ++sample) {
    const MaskedSample read_now = read(*train, sample);
    masks += std::ranges::count(read_now.inputs, 49);
    EXPECT_EQ(std::ranges::count(read_now.targets, 49), 0) << "the mask is no token of the data";
    EXPECT_EQ(std::ranges::count_if(read_now.targets, [](int64_t target) { return target >= 0; }), 8);
  }
  EXPECT_NEAR(static_cast<double>(masks), 0.8 * 8 * 50, 40);
  EXPECT_EQ(open_samples(bert("masked_fraction = 0.001\n"), Split::kTrain)->targets_of(0), 1);
  EXPECT_EQ(open_samples(bert("masked_fraction = 1.0\n"), Split::kTrain)->targets_of(0), 32);
}

TEST(DataSource, HidesOtherTokensOfABertInTrainingThanInValidation_WhichNoSeedChanges) {
  const spec::RunFile run = bert("");
  spec::RunFile other = run;
  other.train.seed = 2;
  const auto places = [](const MaskedSample& sample) {
    std::vector<bool> out;
    for (const int64_t target : sample.targets) out.push_back(target >= 0);
    return out;
  };
  const auto of = [&](const spec::RunFile& file, Split split) { return places(read(*open_samples(file, split), 3)); };
  EXPECT_NE(of(run, Split::kTrain), of(run, Split::kValidation));
  EXPECT_NE(of(run, Split::kTrain), of(other, Split::kTrain));
  EXPECT_EQ(of(run, Split::kValidation), of(other, Split::kValidation));
}

TEST(DataSource, RefusesAMaskThatIsNoTokenOfTheModel) {
  EXPECT_ERROR(open_samples(bert("mask_token = 50\n"), Split::kTrain), Code::kBadConfig,
               "50 is none of model.vocab = 50", "fix: model.vocab = 51 or more, or data.mask_token");
  EXPECT_NO_THROW(open_samples(bert("mask_token = 0\n"), Split::kTrain));
}

}  // namespace
}  // namespace herd::train
