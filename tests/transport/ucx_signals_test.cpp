// Signals stay the process's own, though UCX is loaded.
#include <gtest/gtest.h>
#include <signal.h>

#include "herd/transport/wire.h"

namespace herd::transport {
namespace {

TEST(UcxSignals, AreTheProcesssOwn) {
  if (ucx_version().empty()) GTEST_SKIP() << "this build has no UCX";
  for (const int signal : {SIGHUP, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    struct sigaction action = {};
    ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
    EXPECT_TRUE(action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) << strsignal(signal);
  }
}

}  // namespace
}  // namespace herd::transport
