#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/storage/strict_json_internal.h"

namespace herd {
namespace {

using Json = nlohmann::json;

// Builds the value while the text is read, in one pass. (The parser's own callback searches a parent's members at the
// end of every child, so a header of n tensors takes n * n steps.)
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(int max_depth, const std::string& file, int64_t offset, const std::string& fix)
      : max_depth_(max_depth), file_(file), offset_(offset), fix_(fix) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const auto [member, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!is_new) throw_corrupt(file_, offset_, "the name \"" + name + "\" stands twice", fix_);
    member_ = &member->second;
    return true;
  }

  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    const auto* parsing = dynamic_cast<const Json::parse_error*>(&error);
    const std::string what = error.what();  // begins with "[json.exception.kind] "
    const size_t bracket = what.find("] ");
    throw_corrupt(file_, offset_ + static_cast<int64_t>(parsing ? parsing->byte : 0),
                  "not JSON: " + what.substr(bracket == what.npos ? 0 : bracket + 2), fix_);
  }

 private:
  // Returns where the next value belongs. A list may move its items when it grows, but none of them is open then.
  Json& new_value() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return *member_;
    return open_.back()->get_ref<Json::array_t&>().emplace_back();
  }

  bool add(Json value) {
    new_value() = std::move(value);
    return true;
  }

  bool open(Json empty) {
    if (open_.size() >= static_cast<size_t>(max_depth_)) {
      throw_corrupt(file_, offset_, "JSON nested deeper than " + std::to_string(max_depth_) + " levels", fix_);
    }
    Json& value = new_value();
    value = std::move(empty);
    open_.push_back(&value);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const int max_depth_;
  const std::string& file_;
  const int64_t offset_;
  const std::string& fix_;
  Json root_;
  std::vector<Json*> open_;  // the objects and lists that are open, outermost first
  Json* member_ = nullptr;   // the member of the innermost object whose name was read last
};

}  // namespace

void throw_corrupt(const std::string& file, int64_t offset, const std::string& rule, const std::string& fix) {
  throw Error(Code::kCorruptFile,
              file + " at byte " + std::to_string(offset) + ": " + printable(rule) + "\n  fix: " + fix);
}

Json parse_strict_json(std::string_view text, int max_depth, const std::string& file, int64_t offset,
                       const std::string& fix) {
  Builder builder(max_depth, file, offset, fix);
  Json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace herd
