#include "herd/data/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

std::string some_text() {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "And it came to pass in the " + std::to_string(i) + "th year, that the herd was gathered at the well;\n";
  }
  return text;
}

TEST(Tokenizer, GivesAnyTextBack) {
  const Tokenizer tokenizer = Tokenizer::train(some_text(), 400);
  EXPECT_EQ(tokenizer.vocabulary(), 400);
  const std::string texts[] = {some_text(),
                               "",
                               "\n",
                               " ",
                               "  two  spaces ",
                               "\n\n a\n\n",
                               "tab\tand\r\ncarriage",
                               std::string("nul\0inside", 10),
                               "\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x99\x82 unseen"};
  for (const auto& text : texts) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Tokenizer, NeverProducesTheUnknownToken_AndBytesThatAreNoTextBecomeTheReplacementCharacter) {
  const Tokenizer tokenizer = Tokenizer::train(some_text(), 400);
  const auto ids = tokenizer.encode("\xFF\xFE \x01 \xE6\xBC\xA2");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 0);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xFF")), "a\xEF\xBF\xBD");
}

TEST(Tokenizer, ALineFeedIsATokenOfItsOwn) {
  const Tokenizer tokenizer = Tokenizer::train(some_text(), 400);
  auto ids = tokenizer.encode("the herd");
  ids.push_back(13);
  const auto rest = tokenizer.encode("was");
  ids.insert(ids.end(), rest.begin(), rest.end());
  EXPECT_EQ(tokenizer.encode("the herd\nwas"), ids);
}

// A model with the settings of Llama's tokenizer.model (bpe, byte_fallback, split_digits, allow_whitespace_only_pieces,
// no normalisation) that sentencepiece 0.2.3 learned of 63 lines. The ids are those of LlamaTokenizer, transformers
// 4.57.6, with add_special_tokens.
TEST(Tokenizer, EncodesAsLlamaTokenizerDoes_WithAModelFromElsewhere) {
  const Tokenizer tokenizer =
      Tokenizer::load(std::string(std::getenv("HERD_SOURCE_DIR")) + "/tests/data/golden/llama_like.model");
  EXPECT_FALSE(tokenizer.is_herds());
  const std::pair<const char*, std::vector<int>> cases[] = {
      {"the herd", {1, 263, 291}},
      {"the herd\nwas gathered", {1, 263, 291, 13, 304, 262, 282, 260, 281}},
      {" two  spaces\n\n after\n",
       {1, 292, 292, 293, 304, 309, 292, 292, 299, 303, 295, 302, 294, 299, 13, 13, 292, 295, 321, 293, 270, 13}},
      {"\n", {1, 292, 13}},
      {"", {1}},
      {"tab\tx\r\ny", {1, 292, 293, 295, 101, 323, 322, 16, 13, 310}},
      {"\xC3\xA9t\xC3\xA9 \xE6\xBC\xA2\xF0\x9F\x99\x82 mark",
       {1, 292, 198, 172, 293, 198, 172, 292, 233, 191, 165, 243, 162, 156, 133, 292, 308, 268, 110}},
      {"a\n b", {1, 292, 295, 13, 292, 101}},
      {"  ", {1, 292, 292, 292}}};
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(tokenizer.encode_prompt(text), ids) << text;
    EXPECT_EQ(tokenizer.encode(text), std::vector<int>(ids.begin() + 1, ids.end())) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
  const Tokenizer own = Tokenizer::train(some_text(), 400);
  EXPECT_TRUE(own.is_herds());
  EXPECT_EQ(own.encode_prompt("the herd"), own.encode("the herd")) << "herd's texts begin with no mark";
  EXPECT_EQ(own.encode_prompt(""), std::vector<int>{own.end_of_text()});
}

TEST(Tokenizer, TheSameTextGivesTheSameModel_AndLoadReadsWhatSaveWrote) {
  TemporaryFolder folder;
  const Tokenizer tokenizer = Tokenizer::train(some_text(), 400);
  tokenizer.save(folder / "a.model");
  Tokenizer::train(some_text(), 400).save(folder / "b.model");
  EXPECT_EQ(read_text(folder / "a.model"), read_text(folder / "b.model"));
  EXPECT_EQ(Tokenizer::load(folder / "a.model").encode("gathered at"), tokenizer.encode("gathered at"));
}

TEST(Tokenizer, SaysWhichVocabularyTheTextAllows) {
  EXPECT_ERROR(Tokenizer::train("a few words, no more", 4096), Code::kBadConfig, "vocabulary of 4096", "20 bytes",
               "different pieces", "fix: --vocab");
  EXPECT_ERROR(Tokenizer::train("a b c", std::numeric_limits<int>::max()), Code::kBadConfig, "vocabulary of 2147483647",
               "different pieces", "fix: --vocab 26");
  EXPECT_ERROR(Tokenizer::train(some_text(), 200), Code::kBadConfig, "259", "fix: --vocab");
  EXPECT_ERROR(Tokenizer::train(some_text(), 260), Code::kBadConfig, "alone take", "or more");
  EXPECT_ERROR(Tokenizer::train("\n\n", 400), Code::kBadConfig, "no words");
}

TEST(Tokenizer, RefusesWhatIsNoModel) {
  TemporaryFolder folder;
  EXPECT_ERROR(Tokenizer::load(folder / "absent.model"), Code::kBadConfig, "absent.model", "herd tokenize");
  for (const char* text : {"", "nonsense", "\x0a\xff\xff\xff\xff\x0f"}) {
    write_text(folder / "bad.model", text);
    EXPECT_ERROR(Tokenizer::load(folder / "bad.model"), Code::kCorruptFile, "bad.model");
  }
  EXPECT_ERROR(Tokenizer::train(some_text(), 400).decode({1, 400}), Code::kBadConfig, "id 400", "[0, 400)");
}

}  // namespace
}  // namespace herd
