#include "herd/data/token_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <numeric>
#include <set>
#include <vector>

#include "herd/data/document_file.h"
#include "herd/data/sample_order.h"
#include "herd/data/sample_source.h"
#include "herd/data/token_file.h"
#include "herd/data/token_folder_writer.h"
#include "herd/data/tokenizer.h"
#include "herd/storage/checksum.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

std::string verses(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += "verse " + std::to_string(i) + " of the shepherd and his flock\n";
  return text;
}

std::string decoded(const std::filesystem::path& folder, const char* name) {
  const TokenFile file(folder / name);
  file.verify();
  std::vector<int64_t> ids(static_cast<size_t>(file.count()));
  file.read(0, ids);
  return Tokenizer::load(folder / "tokenizer.model").decode(std::vector<int>(ids.begin(), ids.end()));
}

TEST(TokenFolder, HoldsEveryLineOnce_InOneSplit) {
  TemporaryFolder folder;
  write_text(folder / "a.txt", verses(1000));
  const auto result = write_token_folder({.files = {folder / "a.txt"}, .out = folder / "out", .vocabulary = 320});
  EXPECT_EQ(result.vocabulary, 320);
  const std::string train = decoded(folder / "out", "train.tokens"), validation = decoded(folder / "out", "val.tokens");
  std::multiset<std::string> lines, expected;
  for (const auto& [text, into] : {std::pair(train + validation, &lines), std::pair(verses(1000), &expected)}) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) into->insert(line);
  }
  EXPECT_EQ(lines, expected);
  EXPECT_NEAR(static_cast<double>(validation.size()) / static_cast<double>(verses(1000).size()), 0.05, 0.005);
  EXPECT_NE(validation.find("verse 0", 0) == 0, true) << "validation is spread over the text, not its beginning";
  read_token_folder(folder / "out");
}

TEST(TokenFolder, EveryFileEndsWithTheEndOfText) {
  TemporaryFolder folder;
  write_text(folder / "a.txt", verses(50));
  write_text(folder / "b.txt", "no line feed at the end");
  write_token_folder(
      {.files = {folder / "a.txt", folder / "b.txt"}, .out = folder / "out", .vocabulary = 300, .validation = 0});
  const TokenFile file(folder / "out" / "train.tokens");
  std::vector<int64_t> ids(static_cast<size_t>(file.count()));
  file.read(0, ids);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 2);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(TokenFile(folder / "out" / "val.tokens").count(), 0);
}

TEST(TokenFolder, RefusesFewLongLines_OfWhichASplitGetsNone) {
  TemporaryFolder folder;
  std::string line;
  for (int i = 0; i < 3000; ++i) line += "verse " + std::to_string(i) + " ";
  const auto write = [&](int lines, double validation) {
    std::string text;
    for (int i = 0; i < lines; ++i) text += line + "\n";
    write_text(folder / "a.txt", text);
    return write_token_folder(
        {.files = {folder / "a.txt"}, .out = folder / "out", .vocabulary = 300, .validation = validation});
  };
  for (const auto& [lines, validation] : {std::pair(1, 0.05), {3, 0.05}, {9, 0.05}, {1, 0.5}}) {
    EXPECT_ERROR(write(lines, validation), Code::kBadConfig,
                 " leaves a split empty: each of the runs of whole lines goes whole to one split, and there ",
                 "fix: break long lines first, as by fold -s -w 500; or --validation 0");
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
  EXPECT_EQ(write(1, 0).validation_tokens, 0);
  EXPECT_GT(write(20, 0.05).validation_tokens, 0);
}

TEST(TokenFolder, RefusesFewDocuments_OfWhichASplitGetsNone) {
  TemporaryFolder folder;
  for (const int documents : {1, 3, 9}) {
    std::string text;
    for (int i = 0; i < documents; ++i) text += verses(30) + "\n";
    write_text(folder / "a.txt", text);
    EXPECT_ERROR(write_token_folder({.files = {folder / "a.txt"},
                                     .out = folder / "out",
                                     .vocabulary = 280,
                                     .documents = TextDocuments::kBlankLines}),
                 Code::kBadConfig, "each of the documents goes whole to one split, and there ",
                 "fix: more documents; or --validation 0");
  }
}

// Returns the sizes that a split gets.
std::vector<double> sizes_in(Split split, double validation, const std::vector<double>& sizes) {
  SplitShares shares(validation);
  std::vector<double> got;
  for (const double size : sizes) {
    if (shares.next(size) == split) got.push_back(size);
  }
  return got;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(SplitShares, GiveBothSplitsPiecesOfAllLengths) {
  const SampleOrder order(1000, 7);
  std::vector<double> sizes;
  for (int64_t i = 0; i < 10000; ++i) sizes.push_back(order.window_of(i) % 10 == 0 ? 2000 : 20);
  for (const double share : {0.02, 0.05, 0.1, 0.3}) {
    const auto validation = sizes_in(Split::kValidation, share, sizes);
    EXPECT_NEAR(static_cast<double>(validation.size()), share * 10000, 1) << share;
    EXPECT_NEAR(mean(validation), mean(sizes), 0.25 * mean(sizes)) << share;
  }
}

TEST(SplitShares, HaveNoPeriod) {
  for (const double share : {0.05, 0.1, 0.25, 0.5}) {
    for (const int period : {2, 3, 4, 5, 10, 20}) {
      SplitShares shares(share);
      std::vector<double> counts(static_cast<size_t>(period));
      for (int i = 0; i < 20000; ++i) {
        if (shares.next(100) == Split::kValidation) ++counts[static_cast<size_t>(i % period)];
      }
      for (const double count : counts)
        EXPECT_NEAR(count, 20000 * share / period, 0.1 * 20000 * share / period + 2) << share << " " << period;
    }
  }
}

TEST(SplitShares, LeaveALongPieceToTraining) {
  std::vector<double> sizes(200, 10);
  for (size_t i = 0; i < 20; ++i) {
    sizes[i] = 1e6;
    EXPECT_LT(mean(sizes_in(Split::kValidation, 0.05, sizes)), 11) << i;
    sizes[i] = 10;
  }
}

TEST(TokenFolder, IsToldFromOnesOfAnotherTokenizer) {
  TemporaryFolder folder;
  write_text(folder / "a.txt", verses(50));
  const auto identity = [&](const char* out, int vocabulary, double validation) {
    write_token_folder(
        {.files = {folder / "a.txt"}, .out = folder / out, .vocabulary = vocabulary, .validation = validation});
    return identify_tokenizer(folder / out);
  };
  const std::string one = identity("one", 300, 0.05);
  EXPECT_EQ(one, "crc32c " + format_crc32c(crc32c(read_text(folder / "one/tokenizer.model"))));
  EXPECT_EQ(identity("two", 300, 0.3), one) << "more or fewer tokens of the same tokenizer";
  EXPECT_NE(identity("three", 310, 0.05), one);
}

TEST(TokenFolder, RefusesAFolderWithOtherThings_AndReplacesItsOwn) {
  TemporaryFolder folder;
  write_text(folder / "a.txt", verses(50));
  const TokenFolderOptions options{.files = {folder / "a.txt"}, .out = folder / "out", .vocabulary = 300};
  write_token_folder(options);
  const std::string before = read_text(folder / "out" / "train.tokens");
  write_token_folder(options);
  EXPECT_EQ(read_text(folder / "out" / "train.tokens"), before);
  write_text(folder / "out" / "thesis.tex", "years of work");
  EXPECT_ERROR(write_token_folder(options), Code::kBadConfig, "thesis.tex", "fix:");
  EXPECT_EQ(read_text(folder / "out" / "thesis.tex"), "years of work");
  EXPECT_ERROR(write_token_folder({.files = {folder / "a.txt"}, .out = folder / "a.txt", .vocabulary = 300}),
               Code::kBadConfig, "is a file");
}

TEST(TokenFolder, AFailedRunLeavesNoFolderThatTrainingWouldTake) {
  TemporaryFolder folder;
  write_text(folder / "a.txt", verses(50));
  EXPECT_ERROR(write_token_folder({.files = {folder / "a.txt"}, .out = folder / "out", .vocabulary = 60000}),
               Code::kBadConfig, "different pieces");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(TokenFolder, RefusesWhatIsNoUtf8_NamingFileByteAndLook_AndReplacesItWhenAsked) {
  TemporaryFolder folder;
  write_text(folder / "good.txt", verses(50));
  TokenFolderOptions options{
      .files = {folder / "good.txt", folder / "bad.txt"}, .out = folder / "out", .vocabulary = 300};
  const std::tuple<std::string, const char*, const char*> cases[] = {
      {"caf\xE9\n", "bad.txt at byte 3: E9 is no UTF-8", "fix: iconv -f LATIN1"},
      {std::string("\xFF\xFEh\0i\0", 6), "bad.txt at byte 0: FF is no UTF-8: the text begins as UTF-16 does",
       "fix: iconv"},
      {"\x1F\x8B\x08\x01", "bad.txt at byte 1: 8B is no UTF-8: it is compressed by gzip", "fix: gunzip"},
      {"\xED\xA0\x80", "bad.txt at byte 0: ED is no UTF-8: a lone surrogate, U+D800", "fix: "}};
  for (const auto& [text, what, fix] : cases) {
    write_text(folder / "bad.txt", text);
    EXPECT_ERROR(write_token_folder(options), Code::kBadConfig, what, fix, "--replace-bad-bytes");
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
  write_text(folder / "bad.txt", "caf\xE9 \xE2\x96\x81mark\n");
  options.replace_bad_bytes = true;
  options.validation = 0;
  const TokenFolder result = write_token_folder(options);
  EXPECT_EQ(result.replaced_bytes, 1);
  EXPECT_EQ(result.space_marks, 1);
  EXPECT_EQ(decoded(folder / "out", "train.tokens"), verses(50) + "caf\xEF\xBF\xBD  mark\n");
}

// Returns the documents of a split as text, without their end-of-text token.
std::vector<std::string> documents_in(const std::filesystem::path& tokens) {
  const TokenFile file(tokens);
  const Tokenizer tokenizer = Tokenizer::load(tokens.parent_path() / "tokenizer.model");
  std::vector<std::string> out;
  int64_t begin = 0;
  for (const int64_t end : read_document_ends(file)) {
    std::vector<int64_t> ids(static_cast<size_t>(end - begin));
    file.read(begin, ids);
    EXPECT_EQ(ids.back(), tokenizer.end_of_text());
    out.push_back(tokenizer.decode(std::vector<int>(ids.begin(), ids.end() - 1)));
    begin = end;
  }
  return out;
}

TEST(TokenFolder, KeepsWhereDocumentsEnd_EachInOneSplit) {
  TemporaryFolder folder;
  std::string text, jsonl;
  std::multiset<std::string> expected;
  for (int i = 0; i < 200; ++i) {
    const std::string number = std::to_string(i), document = "psalm " + number + "\nof the shepherd";
    text += document + "\n\n";
    jsonl += "{\"text\": \"psalm " + number + "\\nof the shepherd\", \"id\": " + number + "}\n";
    expected.insert(document);
  }
  write_text(folder / "a.txt", text);
  write_text(folder / "a.jsonl", jsonl);
  for (const auto& [file, kind] :
       {std::pair("a.txt", TextDocuments::kBlankLines), std::pair("a.jsonl", TextDocuments::kJsonl)}) {
    const TokenFolder result = write_token_folder(
        {.files = {folder / file}, .out = folder / "out", .vocabulary = 300, .validation = 0.1, .documents = kind});
    EXPECT_EQ(result.documents, 200);
    std::multiset<std::string> documents;
    const auto train = documents_in(folder / "out/train.tokens"), validation = documents_in(folder / "out/val.tokens");
    EXPECT_NEAR(static_cast<double>(validation.size()), 20, 1) << file;
    documents.insert(train.begin(), train.end());
    documents.insert(validation.begin(), validation.end());
    EXPECT_EQ(documents, expected) << file;
  }
  EXPECT_ERROR(
      write_token_folder(
          {.files = {folder / "a.txt"}, .out = folder / "out", .vocabulary = 300, .documents = TextDocuments::kJsonl}),
      Code::kBadConfig, "a.txt, line 1");
  EXPECT_ERROR(write_token_folder({.files = {folder / "a.jsonl"},
                                   .out = folder / "out",
                                   .vocabulary = 300,
                                   .replace_bad_bytes = true,
                                   .documents = TextDocuments::kJsonl}),
               Code::kBadConfig, "--replace-bad-bytes", "fix:");
}

TEST(TokenFolder, FilesAreDocumentsByDefault) {
  TemporaryFolder folder;
  write_text(folder / "a.txt", verses(300));
  write_text(folder / "b.txt", verses(200));
  write_token_folder({.files = {folder / "a.txt", folder / "b.txt"}, .out = folder / "out", .vocabulary = 300});
  for (const char* tokens : {"train.tokens", "val.tokens"})
    EXPECT_EQ(read_document_ends(TokenFile(folder / "out" / tokens)).size(), 2u) << tokens;
}

// The character that the cut at learn_bytes, or at the longest piece of a line, falls into is not learned as U+FFFD.
TEST(TokenFolder, LearnsFromWholeCharacters) {
  TemporaryFolder folder;
  std::string text = "a";
  for (int i = 0; i < 3000; ++i) text += i % 7 == 0 ? " \xC3\xA9t\xC3\xA9" : "\xE6\xBC\xA2" + std::to_string(i % 10);
  write_text(folder / "a.txt", text + "\n");
  for (const int64_t learn_bytes : {4097, 5001, 5002, 5003, 1 << 20}) {
    write_token_folder({.files = {folder / "a.txt"},
                        .out = folder / "out",
                        .vocabulary = 278,
                        .validation = 0,
                        .learn_bytes = learn_bytes});
    const Tokenizer tokenizer = Tokenizer::load(folder / "out/tokenizer.model");
    for (int id = 259; id < tokenizer.vocabulary(); ++id)
      EXPECT_EQ(tokenizer.piece(id).find("\xEF\xBF\xBD"), std::string::npos)
          << learn_bytes << ": " << tokenizer.piece(id);
  }
}

TEST(TokenFolder, NamesTheFileThatIsMissingOrEmpty) {
  TemporaryFolder folder;
  write_text(folder / "empty.txt", "");
  EXPECT_ERROR(write_token_folder({.files = {folder / "no.txt"}, .out = folder / "out"}), Code::kBadConfig, "no.txt");
  EXPECT_ERROR(write_token_folder({.files = {folder / "empty.txt"}, .out = folder / "out"}), Code::kBadConfig,
               "empty.txt is empty");
  EXPECT_ERROR(write_token_folder({.files = {}, .out = folder / "out"}), Code::kBadConfig, "no text files");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(write_token_folder({.files = {folder / "pipe"}, .out = folder / "out"}), Code::kBadConfig,
               "a file in place of the pipe");
}

}  // namespace
}  // namespace herd
