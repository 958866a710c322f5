#include "herd/convert/config_file_internal.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace herd::convert {
namespace {

constexpr char kText[] = R"({
  "layers": 2, "eps": 1e-5,

  "rope": {
    "factor":
      "x"
  },
  "list": [{"deep": 1}],
  "none": null, "tied": 1,
  "layers": 3
})";

TEST(ConfigFile, TakesNullForAMissingMember) {
  const ConfigFile file(kText, "config.json");
  EXPECT_EQ(file.whole("layers"), 3) << "the last of a name counts, as in Python";
  EXPECT_EQ(file.real("eps"), 1e-5);
  EXPECT_EQ(*file.find("rope.factor"), "x");
  for (const char* absent : {"none", "nowhere", "rope.nowhere", "layers.nowhere", "none.nowhere"}) {
    EXPECT_EQ(file.find(absent), nullptr) << absent;
    EXPECT_EQ(file.whole(absent, 7), 7);
    EXPECT_EQ(file.real(absent, 0.5), 0.5);
    EXPECT_TRUE(file.flag(absent, true));
  }
}

TEST(ConfigFile, NamesLineAndMember) {
  const ConfigFile file(kText, "config.json");
  for (const auto& [member, line] : {std::pair("eps", 2),
                                     {"rope", 4},
                                     {"rope.factor", 5},
                                     {"list", 8},
                                     {"none", 9},
                                     {"layers", 10},
                                     {"nowhere", 0},
                                     {"deep", 0}})
    EXPECT_EQ(file.line_of(member), line) << member;
  EXPECT_ERROR(file.whole("eps"), Code::kCorruptFile,
               "config.json, line 2: \"eps\" must be a whole number from 1 to 2^40, got 1e-05", "fix:");
  EXPECT_ERROR(file.real("rope.factor"), Code::kCorruptFile,
               "config.json, line 5: \"rope.factor\" must be a number, got \"x\"", "fix:");
  EXPECT_ERROR(file.flag("tied", true), Code::kCorruptFile, "config.json, line 9: \"tied\" must be true or false");
  EXPECT_ERROR(file.real("none"), Code::kCorruptFile, "config.json, line 9: \"none\" must be a number, got null");
  EXPECT_ERROR(file.whole("nowhere"), Code::kCorruptFile, "config.json: \"nowhere\" must be a whole number",
               "but it is missing");
}

TEST(ConfigFile, SaysWhereATextIsNoJsonObject) {
  for (const auto& [text, line] : {std::pair("{\"a\": 1,\n\"b\": 2,\n\"c\": }\n", 3),
                                   {"", 1},
                                   {"{\n\"a\": 1\n", 3},
                                   {"{\n\"a\": \"\xff\"}", 2},
                                   {"{}\n}", 2}})
    EXPECT_ERROR(ConfigFile(text, "config.json"), Code::kCorruptFile,
                 "config.json, line " + std::to_string(line) + ": not a JSON object", "fix:");
  EXPECT_ERROR(ConfigFile("{\"a\": 1,\n\"b\": 1e999}", "config.json"), Code::kCorruptFile,
               "config.json, line 2: a number is too large for a double", "fix:");
  EXPECT_ERROR(ConfigFile("[]", "config.json"), Code::kCorruptFile, "config.json: not a JSON object", "fix:");
}

}  // namespace
}  // namespace herd::convert
