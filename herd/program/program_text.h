// Writes and reads a Program as text, one op a line: op, the block or group it is of, lane, reads,
// writes. Grammar: docs/formats/program.md.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "herd/program/program.h"

namespace herd::program {

struct TextOptions {
  // Adds a last column: what the op waits for on other lanes; parse_program() refuses such text.
  bool dependencies = false;
};

std::string to_text(const Program& step, const TextOptions& options = {});

// Reads such text: parse_program(to_text(p)) == p. Throws kCorruptFile with line and rule.
Program parse_program(std::string_view text);

}  // namespace herd::program
