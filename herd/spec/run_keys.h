// Defines the table of every key of the run file. A new key is a member of RunFile and a row here. Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "herd/spec/run_file.h"

namespace herd::spec {

// Finds a key's value in a RunFile; the alternative is the key's type.
using IntegerField = int64_t& (*)(RunFile&);
using NumberField = double& (*)(RunFile&);
using BoolField = bool& (*)(RunFile&);
using TextField = std::string& (*)(RunFile&);
using PairField = std::array<double, 2>& (*)(RunFile&);
struct BytesField {
  int64_t& (*at)(RunFile&);
  bool per_second = false;
};  // "4GiB", or a number of bytes; "8GB/s" for bytes a second
struct AutoField {
  int64_t& (*at)(RunFile&);
};  // an integer, or "auto" = kAuto

// Says what depends on a key's value, and so what another value means for a run that goes on from a checkpoint.
enum class Effect {
  kModel,      // what the weights compute: refused, also for weights that another run begins with
  kRun,        // what holds for the whole life of a run, such as its order of samples: refused
  kTraining,   // how training goes on: legal, and losses differ from there on
  kLayout,     // where and in which order the same is computed: legal, and losses differ by rounding alone
  kBeginning,  // what a run begins with: not read where it goes on
  kNone,       // nothing that is computed: the same bits
};
// Returns what a resumed run gives with another value: "refused", "other losses", "same losses", "not read" or "same
// bits".
std::string_view on_resume(Effect effect);

struct Key {
  std::string_view section, name;
  Effect effect;
  std::variant<IntegerField, NumberField, BoolField, TextField, PairField, BytesField, AutoField> field;
  double min = 0, max = 0;                // bounds of integers and numbers, inclusive
  bool above_min = false;                 // true: the minimum itself is not allowed
  std::vector<std::string_view> choices;  // valid texts; empty = any. "every:K" allows a number in place of K
  std::string_view doc;
  std::string full_name() const;  // returns "train.batch"
};

std::span<const Key> run_keys();
const Key& run_key(std::string_view full_name);  // throws kBug for an unknown name

// Holds the value of a key. Bytes, and numbers that herd may choose, are integers.
using KeyValue = std::variant<int64_t, double, bool, std::string, std::array<double, 2>>;
KeyValue value_of(const Key& key, const RunFile& run);
void set_value(const Key& key, RunFile& run,
               const KeyValue& value);  // REQUIRES a value of the key's type, in its range

// Returns "integer", "number", "true or false", "text", "pair of numbers", "bytes" or "bytes a second".
std::string type_name(const Key& key);
// Returns ">= 1", "in [0, 1)", "none | full | every:K"; empty if any value will do.
std::string range_text(const Key& key);
std::string value_toml(const Key& key, const RunFile& run);  // returns the value as TOML

// Returns the text in quotes, with escapes. REQUIRES UTF-8.
std::string toml_quoted(const std::string& value);
// Returns the shortest text that reads back as the same number, with a point or an exponent.
std::string toml_number(double value);

// Returns the text of docs/guide/run_file.md. `refused` says by key which values this version refuses
// (strategies/techniques.h).
std::string run_file_guide(const std::map<std::string, std::string>& refused);
// Returns the same table for a terminal: a line for each key, with its default, its meaning and what it allows.
std::string run_keys_help();

}  // namespace herd::spec
