// JSON from a file that may be damaged or hostile: no duplicate names, no deep nesting, no invalid text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace herd {

// Throws kCorruptFile "<file> at byte <offset + position>: <rule>\n  fix: <fix>". `offset` is where the text begins.
nlohmann::json parse_strict_json(std::string_view text, int max_depth, const std::string& file, int64_t offset,
                                 const std::string& fix);

[[noreturn]] void throw_corrupt(const std::string& file, int64_t offset, const std::string& rule,
                                const std::string& fix);

}  // namespace herd
