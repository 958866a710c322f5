#include "herd/train/loss_scale_notes.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace herd::train {
namespace {

TEST(LossScaleNotes, GiveBackWhatWasNoted_AndAFreshScaleWhereNothingWas) {
  Notes notes;
  note_loss_scale(optim::LossScale(4096, 17, 3), notes);
  const optim::LossScale back = loss_scale_of(notes, "c");
  EXPECT_EQ(back.scale(), 4096);
  EXPECT_EQ(back.good_steps(), 17);
  EXPECT_EQ(back.skipped(), 3);
  EXPECT_EQ(loss_scale_of({}, "c").scale(), optim::LossScale().scale());
  EXPECT_EQ(loss_scale_of({{"loss_scale", "65536.000000"}}, "c").scale(), 65536);
}

TEST(LossScaleNotes, RefuseWhatIsNoNumberOfTheirKind) {
  for (const char* scale : {"abc", "", "1e300", "nan", "inf", "-1", "0", "8x", " 8"})
    EXPECT_ERROR(loss_scale_of({{"loss_scale", scale}}, "runs/x/step-1"), Code::kCorruptFile, "\"loss_scale\"",
                 "runs/x/step-1", std::string("\"") + scale + "\"", "from 1 to", "fix:");
  for (const char* count : {"abc", "1.5", "-1", "2000", "99999999999999999999"})
    EXPECT_ERROR(loss_scale_of({{"loss_scale_good_steps", count}}, "c"), Code::kCorruptFile, "loss_scale_good_steps",
                 "fix:");
  EXPECT_ERROR(loss_scale_of({{"loss_scale_skipped", "9223372036854775807"}}, "c"), Code::kCorruptFile, "skipped");
}

}  // namespace
}  // namespace herd::train
