#include "herd/base/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace herd {
namespace {

pid_t start_sleeper() {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  return child;
}

TEST(ProcessState, TellsALivingProcessFromOneThatHasEnded) {
  const pid_t child = start_sleeper();
  EXPECT_TRUE(is_running(child));
  EXPECT_FALSE(is_ending(child));
  EXPECT_EQ(parent_of(child), ::getpid());
  ::kill(child, SIGSTOP);
  ::waitpid(child, nullptr, WUNTRACED);
  EXPECT_EQ(process_state_letter(child), 'T');
  EXPECT_FALSE(is_ending(child)) << "one that stands still may go on";
  ::kill(child, SIGKILL);
  EXPECT_TRUE(is_ending(child)) << "whether SIGKILL is still on its way, or it exits, or it has ended";
  siginfo_t ended = {};
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  EXPECT_EQ(process_state_letter(child), 'Z');
  EXPECT_TRUE(is_ending(child));
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(is_ending(child));
  EXPECT_FALSE(is_running(child));
  EXPECT_EQ(parent_of(child), 0);
}

TEST(ProcessState, EndsFromTheMomentOfSIGKILL) {
  for (int round = 0; round < 200; ++round) {
    const pid_t child = start_sleeper();
    ::kill(child, SIGKILL);
    const bool ending = is_ending(child);
    ::waitpid(child, nullptr, 0);
    ASSERT_TRUE(ending) << "round " << round;
  }
}

}  // namespace
}  // namespace herd
