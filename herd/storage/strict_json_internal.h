// Parses JSON of a file that may be damaged or hostile. It refuses names that stand twice, deep nesting, and invalid
// text. Threads: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace herd {

// Returns the value that the text is. Throws kCorruptFile "FILE at byte N: RULE\n  fix: FIX". `offset` is the byte of
// the file where the text begins, and N the byte where it is broken, or `offset`. `max_depth` limits nested objects and
// lists.
nlohmann::json parse_strict_json(std::string_view text, int max_depth, const std::string& file, int64_t offset,
                                 const std::string& fix);

// Throws that error.
[[noreturn]] void throw_corrupt(const std::string& file, int64_t offset, const std::string& rule,
                                const std::string& fix);

}  // namespace herd
