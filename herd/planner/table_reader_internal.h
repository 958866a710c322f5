// Reads what files say of machines: TOML tables, whose keys, types and ranges it checks. Throws kBadConfig with the
// key, the rule and the nearest valid name.   Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/base/units.h"
#include "herd/spec/nearest_name.h"
#include "herd/spec/toml.h"

namespace herd::planner {

[[noreturn]] inline void refuse(const std::string& name, const std::string& rule, const std::string& fix) {
  throw Error(Code::kBadConfig, printable(name) + ": " + printable(rule) + "\n  fix: " + fix);
}

// Parses the text of the file called `name`.
inline toml::table parse_table(std::string_view text, const std::string& name, const std::string& example) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    refuse(name + ", line " + std::to_string(error.source().begin.line),
           "is no TOML: " + std::string(error.description()), example + " has an example");
  }
}

// Reads the values of one table by key and type, and refuses keys that were not read.
class TableReader {
 public:
  // `section` begins the names of keys in errors, "device."; `what` says whose keys they are.
  TableReader(const toml::table& table, std::string name, std::string section, std::string what = "a cluster")
      : table_(table), name_(std::move(name)), section_(std::move(section)), what_(std::move(what)) {}

  const toml::node* find(const std::string& key) {
    known_.push_back(key);
    return table_.get(key);
  }
  std::string text(const std::string& key) {
    const toml::node* node = find(key);
    if (node != nullptr && !node->is_string()) refuse(name_, section_ + key + " expects text in quotes", "\"...\"");
    return node == nullptr ? "" : *node->value<std::string>();
  }
  int64_t bytes(const std::string& key) {
    const toml::node* node = find(key);
    if (node == nullptr) return 0;
    if (node->is_string()) return parse_bytes(*node->value<std::string>());
    if (!node->is_integer() || *node->value<int64_t>() < 0)
      refuse(name_, section_ + key + " expects bytes", "\"80GiB\"");
    return *node->value<int64_t>();
  }
  // Sets `rate` where the key is there: a number of at least 1e-6.
  void rate(const std::string& key, double& rate) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (!is_amount(*node) || *node->value<double>() < kLeast)
      refuse(name_, section_ + key + " expects a number from 1e-6 to 1e12", "like 312e6");
    rate = *node->value<double>();
  }
  // Sets `share` where the key is there: a number of at least 1e-6 and at most 1.
  void share(const std::string& key, double& share) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (!is_amount(*node) || *node->value<double>() < kLeast || *node->value<double>() > 1)
      refuse(name_, section_ + key + " expects a share from 1e-6 to 1", "like 0.7");
    share = *node->value<double>();
  }
  double number(const std::string& key) {
    const toml::node* node = find(key);
    if (node != nullptr && !is_amount(*node)) refuse(name_, section_ + key + " expects a number from 0 to 1e12", "0.5");
    return node == nullptr ? 0 : *node->value<double>();
  }
  std::vector<double> numbers(const std::string& key) {
    const toml::node* node = find(key);
    std::vector<double> out;
    if (node == nullptr) return out;
    if (!node->is_array()) refuse(name_, section_ + key + " expects a list of numbers", "[1.5, 2.0]");
    for (const toml::node& element : *node->as_array()) {
      if (!is_amount(element)) refuse(name_, section_ + key + " expects numbers from 0 to 1e12", "[1.5, 2.0]");
      out.push_back(*element.value<double>());
    }
    return out;
  }
  bool flag(const std::string& key) {
    const toml::node* node = find(key);
    if (node != nullptr && !node->is_boolean()) refuse(name_, section_ + key + " expects true or false", "true");
    return node != nullptr && *node->value<bool>();
  }
  void refuse_others() const {
    for (const auto& [key, node] : table_) {
      if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
      refuse(name_ + ", line " + std::to_string(node.source().begin.line),
             what_ + " has no key " + section_ + std::string(key.str()),
             "did you mean " + section_ + spec::nearest_name(key.str(), known_) + "?");
    }
  }

 private:
  // These bounds admit any real machine. Beyond them sums of times may be no finite number.
  static constexpr double kLeast = 1e-6, kMost = 1e12;

  static bool is_amount(const toml::node& node) {
    const double value = node.is_number() ? *node.value<double>() : -1;
    return value >= 0 && value <= kMost;
  }

  const toml::table& table_;
  std::string name_, section_, what_;
  std::vector<std::string> known_;
};

}  // namespace herd::planner
