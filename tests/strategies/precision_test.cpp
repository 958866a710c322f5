#include "herd/strategies/precision.h"

#include <gtest/gtest.h>

#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

using program::ValueKind;

// Bytes per parameter, without activations.
struct StandingBytes {
  int64_t weight = 0, gradient = 0, states = 0;
  bool operator==(const StandingBytes&) const = default;
};

StandingBytes standing_bytes(const std::string& precision, const std::string& gradients) {
  spec::RunFile run = small_run(2, "none", 1);
  run.strategy.precision = precision;
  run.strategy.gradient_precision = gradients;
  const int64_t parameters = spec::program_table(run, 1).parameters();
  StandingBytes out;
  const std::vector<program::Program> steps = steps_of(run, 1);
  for (const auto& [value, info] : steps[0].values) {
    if (value.kind == ValueKind::kWeight) out.weight += info.bytes;
    if (value.kind == ValueKind::kGradient) out.gradient += info.bytes;
    if (value.kind == ValueKind::kState) out.states += info.bytes;
  }
  for (int64_t* bytes : {&out.weight, &out.gradient, &out.states}) {
    EXPECT_EQ(*bytes % parameters, 0);
    *bytes /= parameters;
  }
  return out;
}

TEST(Precision, TakesTheBytesThatItsHeaderStates) {
  EXPECT_EQ(standing_bytes("fp32", "same"), (StandingBytes{4, 4, 8}));
  EXPECT_EQ(standing_bytes("bf16", "same"), (StandingBytes{2, 2, 10}));
  EXPECT_EQ(standing_bytes("fp16", "same"), (StandingBytes{2, 2, 12}));
  EXPECT_EQ(standing_bytes("bf16", "fp32"), (StandingBytes{2, 4, 10}));
  EXPECT_EQ(standing_bytes("fp16", "fp32"), (StandingBytes{2, 4, 12}));
}

TEST(Precision, IsOfferedWhereNumbersHave32Bits_WithWhatItChanges) {
  const Technique row = precision_row();
  ASSERT_EQ(row.alternatives.size(), 1U);
  const Alternatives& offer = row.alternatives[0];
  EXPECT_FALSE(offer.automatic);
  EXPECT_EQ(offer.result_change, "numbers are rounded to 16 bit");
  spec::RunFile run;
  EXPECT_EQ(offer.values(run, {}), std::vector<spec::KeyValue>{"bf16"});
  for (const char* narrow : {"bf16", "fp16"}) {
    run.strategy.precision = narrow;
    EXPECT_TRUE(offer.values(run, {}).empty()) << narrow;
  }
}

}  // namespace
}  // namespace herd::strategies
