// Fits the text of --help, and errors, into a terminal. Threads: pure, but for print_error().
#pragma once

#include <string>
#include <string_view>

namespace herd::launch {

// Breaks lines that are longer than `width` at spaces. What goes on stands below what it explains: where a line has two
// columns, two spaces apart, below its last one, else below its own beginning. A longer word stays whole. A last column
// that would be narrower than a third of the width goes on a line of its own.
std::string fitted(std::string_view help, int width);

// Returns the columns of the terminal: COLUMNS, or what the terminal on standard output or error says; else 80.
int terminal_width();

// Writes text to the standard error: fitted where that is a terminal, else as it is, so that whoever searches a log
// finds each line whole.
void print_error(std::string_view text);

}  // namespace herd::launch
