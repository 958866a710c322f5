#include "herd/base/units.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "herd/base/error.h"
#include "herd/base/printable.h"

namespace herd {
namespace {

// Writes a value with about three significant digits, and its unit.
std::string scaled(double value, const char* unit) {
  char text[64];
  const double magnitude = std::fabs(value);
  const int decimals = magnitude >= 100 || value == std::floor(value) ? 0 : magnitude >= 10 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, value, unit);
  return text;
}

}  // namespace

int64_t parse_bytes(std::string_view text) {
  const char* end = text.data() + text.size();
  double number = 0;
  const auto [rest, status] = std::from_chars(text.data(), end, number);
  std::string unit;
  for (const char* p = rest; p != end; ++p) {
    if (*p != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*p)));
  }
  double factor = -1;
  const struct {
    const char* name;
    double factor;
  } units[] = {
      {"", 1},     {"b", 1},    {"kib", 1024.}, {"mib", 1048576.}, {"gib", 1073741824.}, {"tib", 1099511627776.},
      {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9},    {"tb", 1e12}};
  for (const auto& u : units) {
    if (unit == u.name) factor = u.factor;
  }
  const double bytes = number * factor;
  if (status != std::errc() || factor < 0 || !(number >= 0) || bytes > 9e18) {
    throw Error(Code::kBadConfig,
                "\"" + printable(text) + "\" is no number of bytes\n  fix: like 4096, 512KiB, 4GiB or 80GB");
  }
  return static_cast<int64_t>(std::llround(bytes));
}

std::string format_bytes(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int i = 0;
  while (std::fabs(bytes) >= 1024 && i < 5) {
    bytes /= 1024;
    ++i;
  }
  return scaled(bytes, units[i]);
}

std::string format_us(double us) {
  if (us < 1e3) return scaled(us, "us");
  if (us < 1e6) return scaled(us / 1e3, "ms");
  if (us < 120e6) return scaled(us / 1e6, "s");
  if (us > 1e16) return format_number(us / 3.6e9) + " h";
  const auto seconds = static_cast<long long>(us / 1e6);
  if (seconds < 7200) return std::to_string(seconds / 60) + " min " + std::to_string(seconds % 60) + " s";
  return std::to_string(seconds / 3600) + " h " + std::to_string(seconds / 60 % 60) + " min";
}

std::string format_count(double count) {
  const char* units[] = {"", "K", "M", "B", "T"};
  int i = 0;
  while (std::fabs(count) >= 1000 && i < 4) {
    count /= 1000;
    ++i;
  }
  std::string text = scaled(count, units[i]);
  if (text.back() == ' ') text.pop_back();
  return text;
}

std::string format_number(double value) {
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

}  // namespace herd
