// Defines what the system knows of a process of this machine. Threads: any.
#pragma once

namespace herd {

// The letter that the system gives a process: R, S, T (stopped), Z (ended, not yet waited for), ...; '?' where it
// knows none of that number.
char process_letter(int pid);

// Whether it still runs, or stands still. What has ended runs no more, though nobody has waited for it yet, as in a
// container whose first process waits for nobody.
bool is_running(int pid);

}  // namespace herd
