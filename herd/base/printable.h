// Makes text from files and strangers fit for a terminal: a byte that belongs to no printable character of UTF-8
// becomes \x1b, say.
// That is control characters, which terminals take for commands, those that turn the direction of text, and bytes that
// are no UTF-8. Names from a file are written with printable(), so that none pretends to be a line of its own; errors
// and logs pass all that they say through printable_lines(). Threads: pure.
#pragma once

#include <string>
#include <string_view>

namespace herd {

std::string printable(std::string_view text);        // one line: line feeds and tabs are escaped, too
std::string printable_lines(std::string_view text);  // these two stay

}  // namespace herd
