#include <algorithm>
#include <iterator>
#include <vector>

#include "herd/convert/config_file_internal.h"

namespace herd::convert {
namespace {

constexpr int64_t kMaxWhole = int64_t{1} << 40;  // the largest size in a config; the run file's rules are tighter

// Iterates over a text for the JSON parser, and tells how far that has read.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char*& read) : at_(at), read_(&read) {}
  reference operator*() const { return *(*read_ = at_); }
  Cursor& operator++() { return ++at_, *this; }
  Cursor operator++(int) { return {at_++, *read_}; }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }
  bool operator!=(const Cursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** read_;
};

int line_at(std::string_view text, size_t byte) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n'));
}

std::string joined(const std::vector<std::string>& names) {
  std::string path;
  for (const std::string& name : names) path += (path.empty() ? "" : ".") + name;
  return path;
}

}  // namespace

ConfigFile::ConfigFile(std::string_view text, std::string file) : file_(std::move(file)) {
  const char* read = text.data();
  const char* counted = text.data();
  int line = 1;
  std::vector<std::string> names;  // of the member being read, and of those around it
  const auto note_line = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    if (event != Json::parse_event_t::key || depth > 2) return true;
    names.resize(static_cast<size_t>(depth));
    names.back() = parsed.get<std::string>();
    line += static_cast<int>(std::count(counted, read, '\n'));
    counted = read;
    lines_[joined(names)] = line;
    return true;
  };
  const std::string fix = "\n  fix: take another copy of the file";
  try {
    json_ = Json::parse(Cursor(text.data(), read), Cursor(text.data() + text.size(), read), note_line);
  } catch (const Json::parse_error& error) {
    const int wrong_line = line_at(text, std::min(text.size(), error.byte > 0 ? error.byte - 1 : 0));
    throw Error(Code::kCorruptFile, file_ + ", line " + std::to_string(wrong_line) + ": not a JSON object" + fix);
  } catch (const Json::out_of_range&) {
    const int wrong_line = line_at(text, static_cast<size_t>(read - text.data()));
    throw Error(Code::kCorruptFile,
                file_ + ", line " + std::to_string(wrong_line) + ": a number is too large for a double" + fix);
  }
  if (!json_.is_object()) throw Error(Code::kCorruptFile, file_ + ": not a JSON object" + fix);
}

const Json* ConfigFile::find(const std::string& member) const {
  const Json* value = &json_;
  for (size_t begin = 0; begin <= member.size();) {
    const size_t end = std::min(member.find('.', begin), member.size());
    if (!value->is_object()) return nullptr;
    const auto found = value->find(member.substr(begin, end - begin));
    if (found == value->end() || found->is_null()) return nullptr;
    value = &*found;
    begin = end + 1;
  }
  return value;
}

int ConfigFile::line_of(const std::string& member) const {
  const auto found = lines_.find(member);
  return found == lines_.end() ? 0 : found->second;
}

std::string ConfigFile::place_of(const std::string& member) const {
  const int line = line_of(member);
  return file_ + (line > 0 ? ", line " + std::to_string(line) : "") + ": \"" + member + "\"";
}

void ConfigFile::refuse(Code code, const std::string& member, const std::string& rule, const std::string& fix) const {
  throw Error(code, place_of(member) + " " + rule + "\n  fix: " + fix);
}

void ConfigFile::wrong_type(const std::string& member, const std::string& expected) const {
  const Json* value = find(member);
  refuse(Code::kCorruptFile, member,
         "must be " + expected + ", " +
             (value != nullptr      ? "got " + value->dump(-1, ' ', false, Json::error_handler_t::replace)
              : line_of(member) > 0 ? "got null"
                                    : "but it is missing"),
         "the config.json that save_pretrained() wrote beside the weights");
}

int64_t ConfigFile::count(const std::string& member, std::optional<int64_t> otherwise) const {
  const Json* value = find(member);
  return value != nullptr && *value == 0 ? 0 : whole(member, otherwise);
}

int64_t ConfigFile::whole(const std::string& member, std::optional<int64_t> otherwise) const {
  const Json* value = find(member);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_number_integer() || value->get<int64_t>() < 1 || value->get<int64_t>() > kMaxWhole)
    wrong_type(member, "a whole number from 1 to 2^40");
  return value->get<int64_t>();
}

double ConfigFile::real(const std::string& member, std::optional<double> otherwise) const {
  const Json* value = find(member);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_number()) wrong_type(member, "a number");
  return value->get<double>();
}

bool ConfigFile::flag(const std::string& member, bool otherwise) const {
  const Json* value = find(member);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong_type(member, "true or false");
  return value->get<bool>();
}

}  // namespace herd::convert
