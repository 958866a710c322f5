// Asks the system about a process of this machine. Threads: any.
#pragma once

namespace herd {

// Returns the letter of proc(5) for a process: R, S, T (stopped), Z (ended, not yet waited for), ...; '?' where there
// is no such process.
char process_letter(int pid);

// Tells whether the process has not ended; a stopped one runs. A zombie has ended, though nobody has waited for it, as
// in a container whose first process waits for nobody.
bool is_running(int pid);

}  // namespace herd
