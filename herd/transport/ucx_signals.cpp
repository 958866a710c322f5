// UCX takes signals for itself when it is loaded. It takes SIGHUP to print where the process is, so that a closed
// terminal stops nothing any more and nohup is undone. It takes those of a crash, so that the process waits for a
// debugger. A library has no business there, so this one restores the earlier handlers as soon as it is loaded.
#include <signal.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

namespace herd::transport {
namespace {

void give_back(int signal) {
  struct sigaction action = {};
  const bool taken =
      sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
  if (taken) ucs_debug_disable_signal(signal);
}

[[gnu::constructor]] void give_all_back() {
  if (ucs_global_opts.debug_signo > 0) give_back(static_cast<int>(ucs_global_opts.debug_signo));
  if (ucs_global_opts.handle_errors == 0) return;
  for (unsigned i = 0; i < ucs_global_opts.error_signals.count; ++i)
    give_back(ucs_global_opts.error_signals.signals[i]);
}

}  // namespace
}  // namespace herd::transport
