// Asks the system about a process of this machine. Threads: any.
#pragma once

namespace herd {

// Returns the letter of proc(5) for a process: R, S, T (stopped), Z (ended, not yet waited for), ...; '?' where /proc
// does not show the process.
char process_state_letter(int pid);

// Tells whether the process still exists and has not ended. A stopped process (T) counts as running. A zombie (Z),
// which no parent has reaped, does not. A process that exists but that /proc hides (hidepid) counts as running.
bool is_running(int pid);

// Returns the process's parent, which is another one (1, as a rule) once the first has ended; 0 where /proc does not
// show the process.
int parent_of(int pid);

// Tells whether the process has ended or is about to: it is a zombie, it exits, or SIGKILL is on its way to it. Its
// files and locks may still be open.
bool is_ending(int pid);

}  // namespace herd
