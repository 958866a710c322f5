// Reads the members of a config.json or generation_config.json, by name: "rms_norm_eps", or "rope_scaling.factor" in an
// object within. As in transformers, null is the same as a missing member. Errors name the file, the line of the member
// and the member. Threads: const methods from any.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "herd/base/error.h"

namespace herd::convert {

using Json = nlohmann::json;

class ConfigFile {
 public:
  // Throws kCorruptFile, with the line, if `text` is no JSON object.
  ConfigFile(std::string_view text, std::string file);

  const Json& json() const { return json_; }
  const std::string& name() const { return file_; }
  // Returns the value of a member; nullptr where it is missing or null.
  const Json* find(const std::string& member) const;
  // Returns the line of a member, from 1; 0 where the file does not have it.
  int line_of(const std::string& member) const;
  // Returns `FILE, line 3: "member"`, without the line where the file does not have the member.
  std::string place_of(const std::string& member) const;

  // Return the value of a member; `otherwise`, if stated, where it is missing or null. Throw kCorruptFile for anything
  // else: a whole number must lie in [1, 2^40].
  int64_t whole(const std::string& member, std::optional<int64_t> otherwise = {}) const;
  // As whole(), of a number that may be 0.
  int64_t count(const std::string& member, std::optional<int64_t> otherwise = {}) const;
  double real(const std::string& member, std::optional<double> otherwise = {}) const;
  bool flag(const std::string& member, bool otherwise) const;

  // Throws an error that begins with the place of the member.
  [[noreturn]] void refuse(Code code, const std::string& member, const std::string& rule, const std::string& fix) const;

 private:
  [[noreturn]] void wrong_type(const std::string& member, const std::string& expected) const;

  std::string file_;
  Json json_;
  std::map<std::string, int> lines_;  // member -> line
};

}  // namespace herd::convert
