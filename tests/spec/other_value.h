// Gives a key of the run file another value than it has, one that the key allows.
#pragma once

#include <algorithm>

#include "herd/spec/run_keys.h"

namespace herd::spec {

inline double other_number(const Key& key, double value) {
  if (value == 0) return std::min(0.25, key.max);
  return value / 2 > key.min ? value / 2 : 2 * value;
}

inline void set_other_value(const Key& key, RunFile& run) {
  if (const auto* integer = std::get_if<IntegerField>(&key.field)) (*integer)(run) += 1;
  if (const auto* number = std::get_if<NumberField>(&key.field)) (*number)(run) = other_number(key, (*number)(run));
  if (const auto* flag = std::get_if<BoolField>(&key.field)) (*flag)(run) = !(*flag)(run);
  if (const auto* pair = std::get_if<PairField>(&key.field)) (*pair)(run)[1] /= 2;
  if (const auto* bytes = std::get_if<BytesField>(&key.field)) bytes->at(run) += 1 << 30;
  if (const auto* number = std::get_if<AutoField>(&key.field))
    number->at(run) = std::max<int64_t>(number->at(run), 0) + 1;
  if (const auto* text = std::get_if<TextField>(&key.field)) {
    std::string& value = (*text)(run);
    const auto other = std::find_if(key.choices.begin(), key.choices.end(), [&](auto one) { return one != value; });
    value = other == key.choices.end() ? value + "x" : std::string(*other);
  }
}

}  // namespace herd::spec
