#include "herd/data/learned_by_herd.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>

namespace herd {
namespace {

// Reads the fields of a message of protocol buffers, one by one.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  struct Field {
    uint64_t number;
    uint64_t value;          // of a varint, or the bits of a fixed number
    std::string_view bytes;  // of a text or a message
  };
  // Returns the next field, or nothing at the end and where the message is broken.
  std::optional<Field> next() {
    const auto tag = varint();
    if (!tag) return std::nullopt;
    Field field{*tag >> 3, 0, {}};
    switch (*tag & 7) {
      case 0: {
        const auto value = varint();
        if (!value) return std::nullopt;
        field.value = *value;
        return field;
      }
      case 1:
        return fixed(8, field);
      case 2: {
        const auto size = varint();
        if (!size || *size > rest_.size()) return std::nullopt;
        field.bytes = rest_.substr(0, *size);
        rest_.remove_prefix(*size);
        return field;
      }
      case 5:
        return fixed(4, field);
      default:
        return std::nullopt;
    }
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::optional<Field> fixed(size_t bytes, Field field) {
    static_assert(std::endian::native == std::endian::little);
    if (rest_.size() < bytes) return std::nullopt;
    std::memcpy(&field.value, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
    return field;
  }

  std::string_view rest_;
};

// Numbers of fields in sentencepiece_model.proto.
constexpr uint64_t kTrainerSpec = 2, kModelType = 3, kVocabulary = 4, kCoverage = 10, kThreads = 16,
                   kLongestSentence = 18, kByteFallback = 35;

}  // namespace

bool is_learned_by_herd(std::string_view model) {
  constexpr uint64_t kBytePairs = 2;
  const std::map<uint64_t, std::optional<uint64_t>> own = {{kModelType, kBytePairs},
                                                           {kVocabulary, std::nullopt},
                                                           {kCoverage, std::bit_cast<uint32_t>(0.9999f)},
                                                           {kThreads, 1},
                                                           {kLongestSentence, 4096},
                                                           {kByteFallback, 1}};
  Fields fields(model);
  while (const auto field = fields.next()) {
    if (field->number != kTrainerSpec) continue;
    Fields settings(field->bytes);
    size_t num_own = 0;
    while (const auto setting = settings.next()) {
      const auto found = own.find(setting->number);
      if (found == own.end() || (found->second && *found->second != setting->value)) return false;
      ++num_own;
    }
    return num_own == own.size();
  }
  return false;
}

}  // namespace herd
