#include "herd/data/text_stream.h"

#include <gtest/gtest.h>

namespace herd {
namespace {

Tokenizer english() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the herd was gathered at the well " + std::to_string(i) + "\n";
  return Tokenizer::train(text, 330);
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int>& ids, std::vector<std::string>* parts) {
  TextStream stream(tokenizer);
  std::string all;
  for (const int id : ids) {
    parts->push_back(stream.add(id));
    all += parts->back();
  }
  return all + stream.rest();
}

TEST(TextStream, HoldsACharacterBack_UntilItsLastByteToken) {
  const Tokenizer tokenizer = english();
  for (const std::string character : {"\xC3\xA9", "\xE6\xBC\xA2", "\xF0\x9F\x99\x82"}) {
    const auto ids = tokenizer.encode("herd" + character + character + "at");
    std::vector<std::string> parts;
    EXPECT_EQ(streamed(tokenizer, ids, &parts), "herd" + character + character + "at");
    int whole = 0;
    for (const auto& part : parts) whole += part == character;
    EXPECT_EQ(whole, 2) << "each came in one part";
  }
}

TEST(TextStream, GivesBytesThatAreNoText_AsDecodeDoes) {
  const Tokenizer tokenizer = english();
  const auto byte = [&](int value) { return 3 + value; };  // after unknown, begin and end
  const int a = tokenizer.encode("herd").back();
  for (const std::vector<int>& ids : {std::vector<int>{byte(0xFF), byte(0xFF), byte(0xFF), byte(0xFF), byte(0xFF), a},
                                      {byte(0xFF), byte(0xF0), byte(0x9F), byte(0x99), byte(0x82), a},
                                      {a, byte(0xC3), a, byte(0xC3), byte(0xA9), byte(0xE6)},
                                      {a, byte(0xF0), byte(0x9F), byte(0x99)}}) {
    std::vector<std::string> parts;
    EXPECT_EQ(streamed(tokenizer, ids, &parts), tokenizer.decode(ids));
  }
}

}  // namespace
}  // namespace herd
