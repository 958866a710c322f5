#include "herd/optim/learning_rate.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"

namespace herd::optim {
namespace {

TEST(LearningRate, WarmsUpFromTheFirstStepAndEndsAtTheMinimum) {
  for (RateSchedule schedule : {RateSchedule::kLinear, RateSchedule::kCosine}) {
    const LearningRate rate{.peak = 1.0, .min = 0.1, .warmup_steps = 4, .total_steps = 12, .schedule = schedule};
    EXPECT_EQ(rate.of_step(0), 0.25);
    EXPECT_EQ(rate.of_step(3), 1.0);
    EXPECT_DOUBLE_EQ(rate.of_step(7), 0.55);  // half way
    EXPECT_NEAR(rate.of_step(11), 0.1, 1e-15);
    EXPECT_NEAR(rate.of_step(500), 0.1, 1e-15);
    for (int64_t step = 4; step < 12; ++step) EXPECT_LT(rate.of_step(step), rate.of_step(step - 1));
  }
}

TEST(LearningRate, StaysConstantAfterWarmUp) {
  const LearningRate rate{.peak = 0.3, .warmup_steps = 0, .total_steps = 5, .schedule = RateSchedule::kConstant};
  for (int64_t step = 0; step < 9; ++step) EXPECT_EQ(rate.of_step(step), 0.3);
}

TEST(LearningRate, LastsThroughARunThatIsAllWarmUp) {
  const LearningRate rate{.peak = 1.0, .warmup_steps = 5, .total_steps = 5};
  EXPECT_EQ(rate.of_step(4), 1.0);
  EXPECT_EQ(rate.of_step(5), 0.0);
}

TEST(LearningRate, NamesTheSchedulesItKnows) {
  EXPECT_EQ(parse_rate_schedule("cosine"), RateSchedule::kCosine);
  try {
    parse_rate_schedule("cosin");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_NE(error.message().find("valid: constant, linear, cosine"), std::string::npos);
  }
}

}  // namespace
}  // namespace herd::optim
