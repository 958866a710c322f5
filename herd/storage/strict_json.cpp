#include <set>
#include <vector>

#include "herd/base/error.h"
#include "herd/storage/strict_json_internal.h"

namespace herd {

void throw_corrupt(const std::string& file, int64_t offset, const std::string& rule, const std::string& fix) {
  throw Error(Code::kCorruptFile, file + " at byte " + std::to_string(offset) + ": " + rule + "\n  fix: " + fix);
}

nlohmann::json parse_strict_json(std::string_view text, int max_depth, const std::string& file, int64_t offset,
                                 const std::string& fix) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> names;  // of the objects that are open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth >= max_depth) {
        throw_corrupt(file, offset, "JSON nested deeper than " + std::to_string(max_depth) + " levels", fix);
      }
      names.emplace_back();
    } else if (event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end) {
      names.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& name = value.get_ref<const std::string&>();
      if (!names.back().insert(name).second) throw_corrupt(file, offset, "the name \"" + name + "\" stands twice", fix);
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {  // the message begins with "[json.exception.kind] "
    const auto* parsing = dynamic_cast<const Json::parse_error*>(&error);
    const std::string what = error.what();
    const size_t bracket = what.find("] ");
    throw_corrupt(file, offset + static_cast<int64_t>(parsing ? parsing->byte : 0),
                  "not JSON: " + what.substr(bracket == what.npos ? 0 : bracket + 2), fix);
  }
}

}  // namespace herd
