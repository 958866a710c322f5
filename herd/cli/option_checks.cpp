#include "herd/cli/option_checks.h"

#include <charconv>
#include <cmath>

#include "herd/base/printable.h"

namespace herd::cli {
namespace {

CLI::Validator number_check(const std::string& example, bool may_be_zero) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        double number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        const bool fits = error == std::errc() && end == text.data() + text.size() && std::isfinite(number) &&
                          (may_be_zero ? number >= 0 : number > 0);
        if (fits) return {};
        return "must be a number " + std::string(may_be_zero ? ">= 0" : "> 0") + ", got \"" + printable(text) +
               "\"\n  fix: like " + example;
      },
      "");
}

}  // namespace

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        return text.empty() ? "is empty, as from a variable that is not set\n  fix: a value, or leave the option out"
                            : "";
      },
      "");
}

CLI::Validator positive_number(const std::string& example) { return number_check(example, false); }

CLI::Validator number_from_zero(const std::string& example) { return number_check(example, true); }

}  // namespace herd::cli
