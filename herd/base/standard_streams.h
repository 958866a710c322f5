// Looks after the standard input, output and error of a process. Threads: open_missing_streams() from any;
// flush_output() from main.
#pragma once

#include <string>

namespace herd {

// Opens /dev/null as each standard stream that the process was started without. Else the next socket or pipe would get
// the number of one, and whatever is printed would go there. It is the first thing in every main.
void open_missing_streams();

// Writes out what has been printed to the standard output. Returns why not all of it could be written, as on a full
// disk; "" where it could, or where its reader has left.
std::string output_failure();

// The last thing in every main: returns `status`, or 1 in place of 0 where output_failure() has something to say, which
// it prints to the standard error.
int flush_output(int status);

}  // namespace herd
