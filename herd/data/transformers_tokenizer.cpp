#include "herd/data/transformers_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace herd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMarks = 3, kBytes = 256;    // the first ids of a vocabulary
constexpr char kSpace[] = "\xe2\x96\x81";  // U+2581

bool is_inside_a_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

Json replace(const char* kind, const std::string& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
}

// Returns the pairs of pieces that make up each piece, those of the smallest ids first.
Json merges_of(const std::vector<std::string>& pieces, const std::unordered_map<std::string, int>& ids) {
  Json merges = Json::array();
  for (size_t id = kMarks + kBytes; id < pieces.size(); ++id) {
    const std::string& piece = pieces[id];
    std::vector<std::tuple<int, int, size_t>> cuts;
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if (is_inside_a_character(piece[cut])) continue;
      const auto left = ids.find(piece.substr(0, cut)), right = ids.find(piece.substr(cut));
      if (left != ids.end() && right != ids.end()) cuts.emplace_back(left->second, right->second, cut);
    }
    std::sort(cuts.begin(), cuts.end());
    for (const auto& [left, right, cut] : cuts) merges.push_back({piece.substr(0, cut), piece.substr(cut)});
  }
  return merges;
}

Json mark(int id, const std::string& piece) {
  return {{"id", id},        {"content", piece},    {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace

std::string transformers_tokenizer(const Tokenizer& tokenizer) {
  std::vector<std::string> pieces;
  std::unordered_map<std::string, int> ids;
  Json vocabulary = Json::object(), marks = Json::array();
  for (int id = 0; id < tokenizer.vocabulary(); ++id) {
    pieces.push_back(tokenizer.piece(id));
    ids[pieces.back()] = id;
    vocabulary[pieces.back()] = id;
    if (id < kMarks) marks.push_back(mark(id, pieces.back()));
  }
  // These put a line feed in front, then a mark of a space after each line feed that text follows. The last one removes
  // the first line feed.
  const Json normalizers = {replace("String", " ", kSpace),
                            {{"type", "Prepend"}, {"prepend", "\n"}},
                            replace("Regex", "\n(?=[^\n])", std::string("\n") + kSpace),
                            replace("Regex", "\\A\n", "")};
  const Json decoders = {replace("String", kSpace, " "),
                         {{"type", "ByteFallback"}},
                         {{"type", "Fuse"}},
                         replace("Regex", "(?<=\n) ", ""),
                         {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}};
  const Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", marks},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
      {"pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "\n"}}}, {"behavior", "Isolated"}, {"invert", false}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", pieces.at(0)},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"ignore_merges", false},
        {"vocab", vocabulary},
        {"merges", merges_of(pieces, ids)}}}};
  return json.dump() + "\n";
}

std::string transformers_tokenizer_config() {
  const Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                     {"unk_token", "<unk>"},
                     {"bos_token", "<s>"},
                     {"eos_token", "</s>"},
                     {"clean_up_tokenization_spaces", false}};
  return json.dump(2) + "\n";
}

}  // namespace herd
