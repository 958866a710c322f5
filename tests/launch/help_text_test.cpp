#include "herd/launch/help_text.h"

#include <gtest/gtest.h>

namespace herd::launch {
namespace {

TEST(HelpText, StaysAsItIsWhereItFits) {
  const std::string text = "Usage: herd plan\n\n  file TEXT   run file\n";
  EXPECT_EQ(fitted(text, 40), text);
}

TEST(HelpText, GoesOnBelowTheColumnThatIsTooLong) {
  EXPECT_EQ(fitted("  --ranks INT   processes that train together\nend", 40),
            "  --ranks INT   processes that train\n"
            "                together\nend");
  EXPECT_EQ(fitted("one two three four five six seven eight nine", 40),
            "one two three four five six seven eight\nnine");
}

TEST(HelpText, PutsAColumnThatWouldBeNarrowOnALineOfItsOwn) {
  EXPECT_EQ(fitted("  herd plan run.toml --ranks 2 --html x   what if it were two?", 44),
            "  herd plan run.toml --ranks 2 --html x\n"
            "      what if it were two?");
}

TEST(HelpText, LeavesALongWordWhole) {
  EXPECT_EQ(fitted("  a   https://example.org/a/very/long/address/that/has/no/space b", 40),
            "  a   https://example.org/a/very/long/address/that/has/no/space\n      b");
}

}  // namespace
}  // namespace herd::launch
