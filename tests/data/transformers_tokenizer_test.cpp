// tokenizer.json as the tokenizers library reads it; tests/train/gpt2_test.cpp compares ids where that is installed.
#include "herd/data/transformers_tokenizer.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

namespace herd {
namespace {

Tokenizer learned() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "verse " + std::to_string(i) + " of the shépherd and his flock\n";
  return Tokenizer::train(text, 400);
}

using Ranks = std::map<std::pair<std::string, std::string>, size_t>;

Ranks ranks_of(const nlohmann::json& json) {
  Ranks ranks;
  for (const auto& merge : json["model"]["merges"]) ranks.emplace(std::pair(merge[0], merge[1]), ranks.size());
  return ranks;
}

// The BPE of tokenizer.json as its library runs it on a word: the pair of the lowest rank first, the leftmost of those.
std::vector<int> merged(const nlohmann::json& vocabulary, const Ranks& ranks, const std::string& word) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < word.size(); ++i) {
    if (parts.empty() || (static_cast<unsigned char>(word[i]) & 0xc0) != 0x80) parts.emplace_back();
    parts.back() += word[i];
  }
  for (bool found = true; found;) {
    found = false;
    size_t best = ranks.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto rank = ranks.find({parts[i], parts[i + 1]});
      if (rank == ranks.end() || rank->second >= best) continue;
      best = rank->second, at = i, found = true;
    }
    if (!found) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<int> ids;
  for (const std::string& part : parts) ids.push_back(vocabulary.at(part));
  return ids;
}

TEST(TransformersTokenizer, HoldsEveryPieceWithItsId) {
  const Tokenizer tokenizer = learned();
  const auto json = nlohmann::json::parse(transformers_tokenizer(tokenizer));
  ASSERT_EQ(json["model"]["vocab"].size(), 400u);
  for (int id = 0; id < 400; ++id) EXPECT_EQ(json["model"]["vocab"][tokenizer.piece(id)], id);
  EXPECT_EQ(json["added_tokens"][2]["content"], "</s>");
  EXPECT_EQ(json["added_tokens"][2]["id"], tokenizer.end_of_text());
  EXPECT_EQ(json["model"]["byte_fallback"], true);
  EXPECT_EQ(nlohmann::json::parse(transformers_tokenizer_config())["eos_token"], "</s>");
}

// Words of few letters, in which most pieces can be made in several ways.
std::string random_words(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    for (unsigned length = 2 + random() % 9; length > 0; --length) text += "aabbc"[random() % 5];
  }
  return text;
}

TEST(TransformersTokenizer, MergesAsTheTokenizerDoes) {
  const Tokenizer tokenizer = Tokenizer::train(random_words(5000, 1), 700);
  const auto json = nlohmann::json::parse(transformers_tokenizer(tokenizer));
  const Ranks ranks = ranks_of(json);
  for (unsigned seed = 2; seed < 300; ++seed) {
    const std::string text = random_words(3, seed);
    std::string word = "\xe2\x96\x81";
    for (const char c : text) word += c == ' ' ? std::string("\xe2\x96\x81") : std::string(1, c);
    EXPECT_EQ(merged(json["model"]["vocab"], ranks, word), tokenizer.encode(text)) << text;
  }
}

}  // namespace
}  // namespace herd
