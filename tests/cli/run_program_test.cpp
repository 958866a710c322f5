#include "herd/cli/run_program.h"

#include <gtest/gtest.h>

namespace herd::cli {
namespace {

TEST(RunProgram, GivesStatusAndOutput_OfBothStreams) {
  const ProgramEnd end = run_program({"/bin/sh", "-c", "echo out; echo \"$1\" >&2; exit 3", "sh", "it's \"one\" word"});
  EXPECT_EQ(end.status, 3);
  EXPECT_EQ(end.output, "out\nit's \"one\" word\n");
}

TEST(RunProgram, SaysASignal_AndAProgramThatIsNotThere) {
  EXPECT_EQ(run_program({"/bin/sh", "-c", "kill -9 $$"}).status, 128 + 9);
  const ProgramEnd none = run_program({"/nowhere/program"});
  EXPECT_EQ(none.status, 127);
  EXPECT_EQ(none.output, "No such file or directory");
}

}  // namespace
}  // namespace herd::cli
