// Makes text from files and strangers fit for a terminal: each byte that belongs to no printable character of UTF-8 is
// escaped, as in "\x1b". Such bytes are control characters, which terminals take for commands, characters that turn the
// direction of text, and bytes that are no UTF-8. Names from a file are written with printable(), so that none pretends
// to be a line of its own. Errors and logs pass all that they say through printable_lines(). Threads: pure.
#pragma once

#include <string>
#include <string_view>

namespace herd {

std::string printable(std::string_view text);        // escapes line feeds and tabs, too: the result is one line
std::string printable_lines(std::string_view text);  // keeps line feeds and tabs

}  // namespace herd
