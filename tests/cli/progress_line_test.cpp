#include "herd/cli/progress_line.h"

#include <gmock/gmock.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace herd::cli {
namespace {

// What is written to stderr while `body` runs and stderr is a terminal.
template <typename Body>
std::string shown_at_a_terminal(const Body& body) {
  int terminal = -1, inside = -1;
  EXPECT_EQ(openpty(&terminal, &inside, nullptr, nullptr, nullptr), 0);
  const int before = dup(STDERR_FILENO);
  dup2(inside, STDERR_FILENO);
  body();
  dup2(before, STDERR_FILENO);
  close(inside);  // the last one: reads end once all has come through the terminal, which takes a moment
  close(before);
  std::string shown;
  char text[1024];
  for (ssize_t bytes; (bytes = read(terminal, text, sizeof text)) > 0;) shown.append(text, static_cast<size_t>(bytes));
  close(terminal);
  return shown;
}

TEST(ProgressLine, ShowsShareAndBytesAtATerminal_AndLeavesNothingBehind) {
  const std::string shown = shown_at_a_terminal([] {
    ProgressLine line("read", true);
    line.update(1 << 20, 4 << 20);
    line.update(2 << 20, 4 << 20);  // too soon after the first
  });
  EXPECT_THAT(shown, testing::StartsWith("\r\033[Kread  25 %  1 MiB of 4 MiB  "));
  EXPECT_THAT(shown, testing::Not(testing::HasSubstr("50 %")));
  EXPECT_THAT(shown, testing::EndsWith("\r\033[K"));
}

TEST(ProgressLine, SaysNothing_WhereNobodyAskedOrStderrIsNoTerminal) {
  EXPECT_EQ(shown_at_a_terminal([] {
              ProgressLine("read", false).update(1, 2);
              std::fputs("end", stderr);
            }),
            "end");
  testing::internal::CaptureStderr();
  ProgressLine("read", true).update(1, 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(StatusLine, ShowsWhatIsDoneAtATerminal_AndLeavesNothingBehind) {
  const std::string shown = shown_at_a_terminal([] {
    StatusLine line("herd plan");
    line.update("programs, 1 of 12");
    line.update("programs, 2 of 12");
    std::this_thread::sleep_for(std::chrono::milliseconds(350));  // in which nothing new is said
  });
  EXPECT_THAT(shown, testing::StartsWith("\r\033[Kherd plan: programs, 2 of 12 (0 s)\r\033[K"));
  EXPECT_THAT(shown, testing::EndsWith("\r\033[K"));
}

TEST(StatusLine, SaysNothingToAFile_OfWhatTakesLessThanSeconds) {
  testing::internal::CaptureStderr();
  {
    StatusLine line("herd plan");
    line.update("programs, 1 of 12");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace herd::cli
