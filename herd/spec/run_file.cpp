#include "herd/spec/run_file.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/base/units.h"
#include "herd/spec/foreign_keys.h"
#include "herd/spec/nearest_name.h"
#include "herd/spec/run_file_rules_internal.h"
#include "herd/spec/run_keys.h"
#include "herd/spec/same_model.h"
#include "herd/spec/toml.h"

namespace herd::spec {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& rule, const std::string& fix) {
  throw Error(Code::kBadConfig, printable(where) + ": " + printable(rule) + (fix.empty() ? "" : "\n  fix: " + fix));
}

// Returns the value as TOML. Numbers have no more digits than tell them apart: 0.9, not 0.90000000000000002.
std::string value_text(const toml::node& node) {
  if (const toml::array* list = node.as_array()) {
    std::string out;
    for (const toml::node& element : *list) out += (out.empty() ? " " : ", ") + value_text(element);
    return "[" + out + (out.empty() ? "]" : " ]");
  }
  if (const auto number = node.is_floating_point() ? node.value<double>() : std::nullopt;
      number && std::isfinite(*number)) {
    const std::string text = format_number(*number);
    return text.find_first_of(".e") == text.npos ? text + ".0" : text;
  }
  std::ostringstream out;
  out << toml::node_view<const toml::node>(node);
  return out.str();
}

std::string node_text(const toml::node& node) {
  if (node.is_table()) return "a table";
  return (node.is_array() ? "the list " : node.is_string() ? "the text " : "") + value_text(node);
}

// Sets one key of the run to the value of a node, after it has checked the value's type and range.
class Setter {
 public:
  Setter(const Key& key, const toml::node& node, std::string where, RunFile& run)
      : key_(key), node_(node), where_(std::move(where)), run_(run) {}

  void operator()(IntegerField field) const {
    if (!node_.is_integer()) wrong_type("an integer");
    const int64_t value = *node_.value<int64_t>();
    check_range(value);
    field(run_) = value;
  }
  void operator()(NumberField field) const {
    if (!node_.is_number()) wrong_type("a number");
    const double value = *node_.value<double>();
    check_range(value);
    field(run_) = value;
  }
  void operator()(BoolField field) const {
    if (!node_.is_boolean()) wrong_type("true or false");
    field(run_) = *node_.value<bool>();
  }
  void operator()(TextField field) const {
    if (!node_.is_string()) wrong_type("text in quotes");
    const std::string value = *node_.value<std::string>();
    if (!key_.choices.empty()) check_choice(value);
    if (key_.choices.empty() && value.empty()) refuse(where_, "is empty", "any text");
    field(run_) = value;
  }
  void operator()(PairField field) const {
    const toml::array* list = node_.as_array();
    if (list == nullptr || list->size() != 2 || !(*list)[0].is_number() || !(*list)[1].is_number()) {
      wrong_type("a pair of numbers");
    }
    std::array<double, 2> values = {*(*list)[0].value<double>(), *(*list)[1].value<double>()};
    for (const double value : values) check_range(value);
    field(run_) = values;
  }
  void operator()(BytesField field) const {
    if (!node_.is_integer() && !node_.is_string())
      wrong_type(field.per_second ? "bytes a second, like \"8GB/s\"" : "bytes, like \"4GiB\" or 4096");
    int64_t bytes = 0;
    if (node_.is_integer()) {
      bytes = *node_.value<int64_t>();
    } else {
      try {
        std::string text = *node_.value<std::string>();
        if (field.per_second && text.ends_with("/s")) text.resize(text.size() - 2);
        bytes = parse_bytes(text);
      } catch (const Error& error) {
        throw Error(error.code(), printable(where_) + ": " + error.message());
      }
    }
    check_range(bytes);
    field.at(run_) = bytes;
  }
  void operator()(AutoField field) const {
    if (node_.value<std::string>() == "auto") {
      field.at(run_) = kAuto;
      return;
    }
    if (!node_.is_integer()) wrong_type("an integer, or \"auto\"");
    (*this)(field.at);
  }

 private:
  [[noreturn]] void wrong_type(const std::string& expected) const {
    refuse(where_, "expects " + expected + ", got " + node_text(node_), "like " + value_toml(key_, RunFile{}));
  }
  // The bounds of whole numbers are whole, and doubles hold them exactly.
  template <typename Number>
  void check_range(Number value) const {
    const auto min = static_cast<Number>(key_.min), max = static_cast<Number>(key_.max);
    const bool inside = value >= min && value <= max && !(key_.above_min && value == min);
    if (!inside)
      refuse(where_, "must be " + range_text(key_) + ", got " + node_text(node_),
             (value > key_.max ? "at most " + format_number(key_.max) + ", " : "") + "like " +
                 value_toml(key_, RunFile{}));
  }
  void check_choice(const std::string& value) const {
    std::vector<std::string> names;
    for (const auto choice : key_.choices) {
      names.emplace_back(choice);
      if (choice == value && choice != "every:K" && choice != "file:PATH") return;
      if (choice == "every:K" && value.starts_with("every:")) return check_interval(value);
      if (choice == "file:PATH" && value.starts_with("file:") && value.size() > 5) return;
    }
    refuse(where_, "must be one of " + range_text(key_) + ", got " + node_text(node_),
           "did you mean \"" + nearest_name(value, names) + "\"?");
  }

  void check_interval(const std::string& value) const {
    int count = 0;
    const char* end = value.data() + value.size();
    const auto result = std::from_chars(value.data() + 6, end, count);
    if (result.ec == std::errc() && result.ptr == end && count >= 1) return;
    refuse(where_, "K of every:K must be an integer in [1, layers], got " + node_text(node_), "\"every:1\"");
  }

  const Key& key_;
  const toml::node& node_;
  const std::string where_;
  RunFile& run_;
};

const Key* find_key(std::string_view section, std::string_view name) {
  for (const Key& key : run_keys()) {
    if (key.section == section && key.name == name) return &key;
  }
  return nullptr;
}

[[noreturn]] void unknown_section(const std::string& place, std::string_view section) {
  std::vector<std::string> sections;
  for (const Key& key : run_keys()) {
    if (sections.empty() || sections.back() != key.section) sections.emplace_back(key.section);
  }
  refuse("\"" + std::string(section) + "\" (" + place + ")", "no such section of the run file",
         "did you mean [" + nearest_name(section, sections) + "]?");
}

[[noreturn]] void unknown_key(const std::string& place, std::string_view section, std::string_view name) {
  std::vector<std::string> names;
  std::string elsewhere;  // the same key stands in another section
  for (const Key& key : run_keys()) {
    if (key.section == section) names.emplace_back(key.name);
    if (key.name == name && elsewhere.empty()) elsewhere = key.full_name();
  }
  const std::string full = std::string(section) + "." + std::string(name);
  if (elsewhere.empty())
    if (const std::string ours = key_for_foreign(name); !ours.empty())
      refuse(full + " (" + place + ")", "no such key", ours);
  if (names.empty()) unknown_section(place, section);
  refuse(
      full + " (" + place + ")", "no such key",
      "did you mean " + (elsewhere.empty() ? std::string(section) + "." + nearest_name(name, names) : elsewhere) + "?");
}

void set_key(std::string_view section, std::string_view name, const toml::node& node, const std::string& place,
             RunFile& run) {
  const Key* key = find_key(section, name);
  if (key == nullptr) unknown_key(place, section, name);
  std::visit(Setter(*key, node, key->full_name() + " (" + place + ")", run), key->field);
}

std::string line_of(const toml::node& node, const std::string& file) {
  return file + ", line " + std::to_string(node.source().begin.line);
}

toml::table parse_toml(std::string_view text, const std::string& place) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    refuse(place + ", line " + std::to_string(error.source().begin.line),
           "is no TOML: " + std::string(error.description()),
           "key = value, such as steps = 200, with text in quotes (docs/guide/run_file.md)");
  }
}

void set_override(const std::string& text, RunFile& run) {
  const std::string place = "override \"" + text + "\"";
  const size_t equals = text.find('='), dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    const std::string ours = key_for_foreign(std::string_view(text).substr(0, equals));
    refuse(place, "must be section.key=value", ours.empty() ? "like train.steps=100" : ours);
  }
  const std::string section = text.substr(0, dot), name = text.substr(dot + 1, equals - dot - 1);
  std::string value = text.substr(equals + 1);
  const Key* key = find_key(section, name);
  if (key == nullptr) unknown_key(place, section, name);
  const bool is_text = std::holds_alternative<TextField>(key->field);
  const bool is_number =
      std::holds_alternative<BytesField>(key->field) || std::holds_alternative<AutoField>(key->field);
  const bool bare = value.empty() || (value.front() != '"' && value.front() != '\'');
  if (bare && (is_text || (is_number && value.find_first_not_of("0123456789") != std::string::npos))) {
    toml::value<std::string> node(value);
    std::visit(Setter(*key, node, key->full_name() + " (" + place + ")", run), key->field);
    return;
  }
  if (value.find('\n') != std::string::npos) refuse(place, "holds a line break", "one value, like train.steps=100");
  const toml::table parsed = parse_toml("value = " + value, place);
  set_key(section, name, *parsed.get("value"), place, run);
}

// Sets the keys that the file and the overrides state.
void set_keys(const toml::table& root, const std::string& name, std::span<const std::string> overrides, RunFile& run) {
  for (const auto& [section, body] : root) {
    if (!body.is_table()) {
      const std::string ours = key_for_foreign(section.str());
      refuse("\"" + std::string(section.str()) + "\" (" + line_of(body, name) + ")", "stands outside of a section",
             ours.empty() ? "put it under a heading like [train]" : ours);
    }
    for (const auto& [key, node] : *body.as_table()) set_key(section.str(), key.str(), node, line_of(node, name), run);
    if (body.as_table()->empty()) {
      bool known = false;
      for (const Key& key : run_keys()) known = known || key.section == section.str();
      if (!known) unknown_section(line_of(body, name), section.str());
    }
  }
  for (const std::string& text : overrides) set_override(text, run);
}

// Returns the defaults of a run that starts from a model's weights. The keys model.weights and model.frozen keep their
// own defaults.
RunFile defaults_with(RunFile::Model model) {
  RunFile run;
  model.weights = run.model.weights;
  model.frozen = run.model.frozen;
  run.model = std::move(model);
  return run;
}

}  // namespace

RunFile parse_run_text(std::string_view toml, const std::string& name, std::span<const std::string> overrides,
                       const FindModel& find_model) {
  RunFile run;
  run.model.norm.clear();  // is that of the kind unless it is stated
  const toml::table root = parse_toml(toml, name);
  set_keys(root, name, overrides, run);
  const std::optional<GivenModel> given = find_model ? find_model(run) : std::nullopt;
  if (given) {
    run = defaults_with(given->model);
    set_keys(root, name, overrides, run);
  }
  fill_derived(run);
  if (given) check_same_model(given->model, run.model, given->source);
  check_rules(run);
  return run;
}

RunFile parse_run_file(const std::string& path, std::span<const std::string> overrides, const FindModel& find_model) {
  std::error_code ignored;
  if (std::filesystem::is_fifo(path, ignored)) {  // a rank would read an empty run file, which is one, too
    throw Error(Code::kBadConfig, "the run file \"" + path + "\" is a pipe, and the launcher and every rank read it" +
                                      "\n  fix: a file in place of the pipe");
  }
  std::ifstream file(path, std::ios::binary);
  const bool readable = file && !std::filesystem::is_directory(path, ignored);
  const std::string text = readable ? std::string(std::istreambuf_iterator<char>(file), {}) : "";
  if (!readable || file.bad()) {
    throw Error(Code::kStorage,
                "can't read the run file \"" + path + "\"\n  fix: an existing TOML file, like examples/gpt_kjv.toml");
  }
  return parse_run_text(text, path, overrides, find_model);
}

std::vector<std::string> nvme_folders(const RunFile& run) {
  std::vector<std::string> out;
  if (run.memory.nvme_path == "auto") return out;
  std::istringstream folders(run.memory.nvme_path + ":");
  for (std::string folder; std::getline(folders, folder, ':');) out.push_back(folder);
  return out;
}

std::string to_toml(const RunFile& run) {
  std::string out;
  std::string_view section;
  for (const Key& key : run_keys()) {
    if (key.section != section) {
      out += (section.empty() ? "[" : "\n[") + std::string(key.section) + "]\n";
      section = key.section;
    }
    out += std::string(key.name) + " = " + value_toml(key, run) + "\n";
  }
  return out;
}

}  // namespace herd::spec
