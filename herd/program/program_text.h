// A Program as text, one op a line: op, of, lane, reads, writes. docs/formats/program.md holds the grammar.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "herd/program/program.h"

namespace herd::program {

struct TextOptions {
  bool dependencies = false;  // a last column: what the op waits for on other lanes; such text is not for parsing
};

std::string to_text(const Program& step, const TextOptions& options = {});

// parse_program(to_text(p)) == p. Throws kCorruptFile, naming line and rule.
Program parse_program(std::string_view text);

}  // namespace herd::program
