#include "herd/data/id_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/storage/mapped_file.h"

namespace herd {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& fix) {
  throw Error(Code::kBadConfig, what + "\n  fix: " + fix);
}

int checked_id(int64_t id, bool is_too_large, int64_t vocabulary, const std::function<std::string()>& where) {
  if (!is_too_large && id >= 0 && id < vocabulary) return static_cast<int>(id);
  const std::string value = is_too_large ? std::to_string(static_cast<uint64_t>(id)) : std::to_string(id);
  refuse(where() + ": id " + value + " is not in [0, " + std::to_string(vocabulary) + "), which --vocab states",
         id < 0 || is_too_large ? "ids of one tokenizer, none of which is negative (is this another --dtype?)"
                                : "--vocab " + std::to_string(id + 1) + " or more: as many as the tokenizer has");
}

template <typename T>
int64_t load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<int64_t>(value);
}

int64_t load_id(const std::byte* at, const IdType& type) {
  switch (type.bytes) {
    case 1:
      return type.is_signed ? load<int8_t>(at) : load<uint8_t>(at);
    case 2:
      return type.is_signed ? load<int16_t>(at) : load<uint16_t>(at);
    case 4:
      return type.is_signed ? load<int32_t>(at) : load<uint32_t>(at);
    default:
      return load<int64_t>(at);  // a uint64 above the largest int64 turns negative
  }
}

void read_array(std::span<const std::byte> bytes, const IdType& type, const IdFileOptions& options,
                const VisitIds& visit) {
  const auto count = static_cast<int64_t>(bytes.size()) / type.bytes;
  const int64_t limit = options.max_ids_per_visit ? options.max_ids_per_visit(count) : count;
  const int64_t ids_per_visit = std::max<int64_t>(1, limit);
  std::vector<int> ids;
  for (int64_t begin = 0; begin < count; begin += ids_per_visit) {
    const int64_t end = std::min(count, begin + ids_per_visit);
    ids.clear();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = load_id(bytes.data() + i * type.bytes, type);
      ids.push_back(checked_id(id, id < 0 && !type.is_signed, options.vocabulary,
                               [&] { return options.path.string() + ", position " + std::to_string(i); }));
    }
    visit(ids, end == count);
  }
}

// Returns the text after "'name':" in the header of a .npy file, a Python dictionary, or "" if there is none.
std::string_view value_of(std::string_view header, const std::string& name) {
  const size_t at = header.find("'" + name + "'");
  const size_t colon = at == header.npos ? header.npos : header.find(':', at);
  if (colon == header.npos) return {};
  const size_t begin = header.find_first_not_of(' ', colon + 1);
  return begin == header.npos ? std::string_view() : header.substr(begin);
}

IdType type_of_npy(std::string_view descr, const std::string& file) {
  const std::string_view name = descr.size() > 5 ? descr.substr(0, 5) : descr;  // such as '<u2'
  if (name.size() == 5 && name[0] == '\'' && name[4] == '\'' && (name[2] == 'u' || name[2] == 'i')) {
    const int bytes = name[3] - '0';
    const bool is_id_size = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
    if (is_id_size && (name[1] == '<' || (bytes == 1 && name[1] == '|'))) return {bytes, name[2] == 'i'};
  }
  refuse(file + ": its elements are " + std::string(descr.substr(0, descr.find(','))) +
             ", but ids are integers of 1 to 8 bytes, little-endian",
         "numpy.save(FILE, ids.astype('<u4'))");
}

void read_npy(std::span<const std::byte> bytes, const IdFileOptions& options, const VisitIds& visit) {
  const std::string file = options.path.string();
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  if (bytes.size() < 12 || std::string_view(text, 6) != std::string_view("\x93NUMPY", 6)) {
    refuse(file + ": a .npy file starts with \\x93NUMPY, this one does not",
           "numpy.save(FILE, ids), or another name for a raw file, and --dtype");
  }
  // The length of the header has 2 bytes in version 1, and 4 bytes in later versions.
  const bool is_first_version = text[6] == 1;
  const size_t begin = is_first_version ? 10 : 12;
  const size_t length = is_first_version ? static_cast<size_t>(load<uint16_t>(bytes.data() + 8))
                                         : static_cast<size_t>(load<uint32_t>(bytes.data() + 8));
  const auto fail = [&](const std::string& rule) {
    throw Error(Code::kCorruptFile, file + ": " + rule + "\n  fix: write it again with numpy.save");
  };
  if (length > bytes.size() - begin) fail("its header of " + std::to_string(length) + " bytes is cut");
  const std::string_view header(text + begin, length);
  const IdType type = type_of_npy(value_of(header, "descr"), file);
  const std::string_view shape = value_of(header, "shape");
  int64_t count = 0;
  const char* shape_end = shape.data() + shape.size();
  const auto parsed = shape.size() > 1 ? std::from_chars(shape.data() + 1, shape_end, count)
                                       : std::from_chars_result{shape_end, std::errc::invalid_argument};
  if (parsed.ec != std::errc() ||
      !(std::string_view(parsed.ptr, shape_end).starts_with(",)") ||
        std::string_view(parsed.ptr, shape_end).starts_with(", )")) ||
      count < 0) {
    refuse(
        file + ": its shape is " + std::string(shape.substr(0, shape.find(')') + 1)) + ", but ids have one dimension",
        "numpy.save(FILE, ids.reshape(-1)), or a .jsonl file with a line for each document");
  }
  const auto data_bytes = static_cast<int64_t>(bytes.size() - begin - length);
  if (data_bytes % type.bytes != 0 || data_bytes / type.bytes != count) {
    fail("its header states " + std::to_string(count) + " ids of " + std::to_string(type.bytes) + " bytes, but " +
         std::to_string(data_bytes) + " bytes follow it");
  }
  read_array(bytes.subspan(begin + length), type, options, visit);
}

void read_raw(std::span<const std::byte> bytes, const IdFileOptions& options, const VisitIds& visit) {
  const std::string file = options.path.string();
  if (!options.raw) {
    refuse(file + " is neither .npy nor .jsonl, so it is read as raw ids, whose type must be known",
           "--dtype uint16, uint32, int32 or int64");
  }
  if (bytes.size() % static_cast<size_t>(options.raw->bytes) != 0) {
    refuse(file + " has " + std::to_string(bytes.size()) + " bytes, no multiple of the " +
               std::to_string(options.raw->bytes) + " that --dtype gives an id",
           "the --dtype that it was written with");
  }
  read_array(bytes, *options.raw, options, visit);
}

void read_jsonl(std::string_view text, const IdFileOptions& options, const VisitIds& visit) {
  std::vector<int> ids;
  for (int64_t line = 1; !text.empty(); ++line) {
    const std::string_view text_line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), text_line.size() + 1));
    if (text_line.find_first_not_of(" \t\r") == text_line.npos) continue;
    const std::string where = options.path.string() + ", line " + std::to_string(line);
    const auto json = nlohmann::json::parse(text_line, nullptr, false);
    const std::string fix = "a line like [464, 2068, 7586] for each document";
    if (!json.is_array()) refuse(where + ": it is no JSON array of integers", fix);
    ids.clear();
    for (size_t i = 0; i < json.size(); ++i) {
      const auto position = [&] { return where + ", position " + std::to_string(i); };
      const auto& value = json[i];
      if (!value.is_number_integer()) refuse(position() + ": " + value.dump() + " is no integer", fix);
      const bool is_too_large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX};
      ids.push_back(checked_id(value.get<int64_t>(), is_too_large, options.vocabulary, position));
    }
    if (!ids.empty()) visit(ids, true);
  }
}

}  // namespace

IdType parse_id_type(std::string_view name) {
  if (name == "uint16") return {2, false};
  if (name == "uint32") return {4, false};
  if (name == "int32") return {4, true};
  if (name == "int64") return {8, true};
  refuse("--dtype " + std::string(name) + " is no type of raw ids", "--dtype uint16, uint32, int32 or int64");
}

void read_id_file(const IdFileOptions& options, const VisitIds& visit) {
  if (!std::filesystem::is_regular_file(options.path))
    refuse("there is no file " + options.path.string(), "name existing files of token ids");
  read_ids(options, MappedFile(options.path).bytes(), visit);
}

void read_ids(const IdFileOptions& options, std::span<const std::byte> bytes, const VisitIds& visit) {
  const std::string kind = options.path.extension().string();
  if (kind == ".npy") return read_npy(bytes, options, visit);
  if (kind == ".jsonl") return read_jsonl({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, options, visit);
  read_raw(bytes, options, visit);
}

}  // namespace herd
