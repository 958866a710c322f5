// The table of every key of the run file. Adding a key = a member of RunFile and a row here.
// Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "herd/spec/run_file.h"

namespace herd::spec {

// Where a key's value lives in a RunFile; the alternative is its type.
using IntegerField = int64_t& (*)(RunFile&);
using NumberField = double& (*)(RunFile&);
using BoolField = bool& (*)(RunFile&);
using TextField = std::string& (*)(RunFile&);
using PairField = std::array<double, 2>& (*)(RunFile&);
struct BytesField {
  int64_t& (*at)(RunFile&);
};  // "4GiB", or a number of bytes
struct AutoField {
  int64_t& (*at)(RunFile&);
};  // an integer, or "auto" = kAuto

struct Key {
  std::string_view section, name;
  std::variant<IntegerField, NumberField, BoolField, TextField, PairField, BytesField, AutoField> field;
  double min = 0, max = 0;                // of integers and numbers, inclusive
  bool above_min = false;                 // the minimum itself is not allowed
  std::vector<std::string_view> choices;  // of text; empty = any. "every:K" allows a number in place of K
  std::string_view doc;
  std::string full_name() const;  // "train.batch"
};

std::span<const Key> run_keys();
const Key& run_key(std::string_view full_name);  // throws kBug where there is none

// The value of a key. Bytes, and numbers that may be left to herd, are integers.
using KeyValue = std::variant<int64_t, double, bool, std::string, std::array<double, 2>>;
KeyValue value_of(const Key& key, const RunFile& run);
void set_value(const Key& key, RunFile& run,
               const KeyValue& value);  // REQUIRES a value of the key's type, in its range

std::string type_name(const Key& key);   // "integer", "number", "true or false", "text", "pair of numbers", "bytes"
std::string range_text(const Key& key);  // ">= 1", "in [0, 1)", "none | full | every:K"; empty if any value will do
std::string value_toml(const Key& key, const RunFile& run);  // the value as TOML

std::string toml_number(double value);  // the shortest that reads back as the same, with a point or an exponent

// docs/guide/run_file.md.
std::string run_file_guide();
// The same table for a terminal: a line for each key, its default, what it means and what it allows.
std::string run_keys_help();

}  // namespace herd::spec
