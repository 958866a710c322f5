// Checks of option values that CLI11's own checks let pass: empty texts, as from a variable that is not set, and nan.
// Threads: pure.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace herd::cli {

// Refuses an empty value.
CLI::Validator not_empty();

// Takes finite numbers above zero. `example` is one, for the fix.
CLI::Validator positive_number(const std::string& example);

// Takes finite numbers from zero on.
CLI::Validator number_from_zero(const std::string& example);

}  // namespace herd::cli
