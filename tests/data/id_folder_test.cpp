#include "herd/data/id_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "herd/data/document_file.h"
#include "herd/data/sample_source.h"
#include "herd/data/token_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::string raw(const std::vector<T>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T)};
}

// As numpy.save writes it: a header padded to 64 bytes.
std::string npy(const std::string& descr, const std::string& shape, const std::string& bytes) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(117, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + std::string("\x76\x00", 2) + header + bytes;
}

std::vector<int64_t> ids_in(const fs::path& file) {
  const TokenFile tokens(file);
  tokens.verify();
  std::vector<int64_t> ids(static_cast<size_t>(tokens.count()));
  tokens.read(0, ids);
  return ids;
}

class IdFolder : public testing::Test {
 protected:
  TokenFolder write(const std::vector<std::string>& files, IdFolderOptions options = {}) {
    for (const std::string& file : files) options.files.push_back(root_ / file);
    options.out = root_ / "out";
    if (options.vocabulary_size == 0) options.vocabulary_size = 70000;
    return write_id_folder(options);
  }
  std::vector<int64_t> train() const { return ids_in(root_ / "out/train.tokens"); }

  TemporaryFolder root_;
};

TEST_F(IdFolder, HoldsTheIdsOfEveryKindOfFile) {
  const std::vector<int64_t> expected = {5, 0, 300, 65535};
  write_text(root_ / "a.bin", raw<uint16_t>({5, 0, 300, 65535}));
  write({"a.bin"}, {.raw_type = parse_id_type("uint16"), .validation = 0});
  EXPECT_EQ(train(), expected);
  EXPECT_EQ(ids_in(root_ / "out/val.tokens"), std::vector<int64_t>());
  write_text(root_ / "b", raw<int64_t>({5, 0, 300, 65535}));
  write({"b"}, {.raw_type = parse_id_type("int64"), .validation = 0});
  EXPECT_EQ(train(), expected);
  write_text(root_ / "c.jsonl", "[5,0]\r\n\n[ ]\n[300, 65535]");
  write({"c.jsonl"}, {.validation = 0});
  EXPECT_EQ(train(), expected);
  for (const auto& [descr, bytes] :
       {std::pair("<u2", raw<uint16_t>({5, 0, 300, 65535})), std::pair("<u4", raw<uint32_t>({5, 0, 300, 65535})),
        std::pair("<i4", raw<int32_t>({5, 0, 300, 65535})), std::pair("<i8", raw<int64_t>({5, 0, 300, 65535})),
        std::pair("<u8", raw<uint64_t>({5, 0, 300, 65535}))}) {
    write_text(root_ / "d.npy", npy(descr, "(4,)", bytes));
    write({"d.npy"}, {.validation = 0});
    EXPECT_EQ(train(), expected) << descr;
  }
  write_text(root_ / "e.npy", npy("|u1", "(2,)", "\x05\xff"));
  EXPECT_EQ(write({"e.npy", "d.npy"}, {.vocabulary_size = 65536, .validation = 0}).train_tokens, 6);
  EXPECT_EQ(train(), (std::vector<int64_t>{5, 255, 5, 0, 300, 65535}));
  EXPECT_EQ(TokenFile(root_ / "out/train.tokens").vocabulary(), 65536);
}

TEST_F(IdFolder, PutsTheEndOfTextAfterEachDocumentThatLacksIt) {
  write_text(root_ / "a.jsonl", "[5,6]\n[7,2]\n[8]\n");
  write_text(root_ / "b.npy", npy("<u2", "(3,)", raw<uint16_t>({2, 9, 9})));
  write({"a.jsonl", "b.npy"}, {.end_of_text = 2, .validation = 0});
  EXPECT_EQ(train(), (std::vector<int64_t>{5, 6, 2, 7, 2, 8, 2, 2, 9, 9, 2}));
  EXPECT_EQ(read_document_ends(TokenFile(root_ / "out/train.tokens")), (std::vector<int64_t>{3, 5, 7, 11}));
  const TokenFolderFacts facts = read_token_folder(root_ / "out");
  EXPECT_FALSE(facts.has_tokenizer);
  EXPECT_EQ(facts.end_of_text, 2);
  write({"a.jsonl"}, {.validation = 0});
  EXPECT_EQ(read_token_folder(root_ / "out").end_of_text, std::nullopt);
}

TEST_F(IdFolder, SplitsByDocumentsAndByRuns_AndTrainingReadsIt) {
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += "[" + std::to_string(i) + "," + std::to_string(i) + ",1000]\n";
  write_text(root_ / "a.jsonl", lines);
  const TokenFolder documents = write({"a.jsonl"}, {.validation = 0.1});
  EXPECT_EQ(documents.train_tokens + documents.validation_tokens, 1200);
  EXPECT_NEAR(static_cast<double>(documents.validation_tokens), 120, 3);
  const auto validation = ids_in(root_ / "out/val.tokens");
  for (size_t i = 0; i < validation.size(); i += 3) {
    EXPECT_EQ(validation[i], validation[i + 1]) << "a document is in one split";
    EXPECT_EQ(validation[i + 2], 1000);
  }
  EXPECT_GT(validation[validation.size() - 3], 350) << "spread over the data";

  std::vector<uint32_t> many(100000);
  std::iota(many.begin(), many.end(), 0u);
  many.resize(70000);
  write_text(root_ / "b.npy", npy("<u4", "(70000,)", raw(many)));
  const TokenFolder runs = write({"b.npy"});
  EXPECT_NEAR(static_cast<double>(runs.validation_tokens), 3500, 500);
  std::vector<int64_t> all = train();
  for (const int64_t id : ids_in(root_ / "out/val.tokens")) all.push_back(id);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, std::vector<int64_t>(many.begin(), many.end())) << "every id once";
  EXPECT_GT(open_tokens(root_ / "out", Split::kTrain, 16, 1)->samples_per_epoch(), 4000);
  EXPECT_FALSE(fs::exists(root_ / "out/tokenizer.model"));
  EXPECT_THAT(identify_tokenizer(root_ / "out"), testing::StartsWith("ids below "));
}

TEST_F(IdFolder, RefusesAnIdBeyondTheVocabulary_NamingItsPosition) {
  write_text(root_ / "a.jsonl", "[5]\n[6,7,100]\n");
  EXPECT_ERROR(write({"a.jsonl"}, {.vocabulary_size = 100}), Code::kBadConfig, "a.jsonl, line 2, position 2: id 100",
               "[0, 100), which --vocab states", "fix: --vocab 101 or more");
  write_text(root_ / "b.npy", npy("<i4", "(3,)", raw<int32_t>({5, -1, 7})));
  EXPECT_ERROR(write({"b.npy"}), Code::kBadConfig, "b.npy, position 1: id -1 is not in [0, 70000)", "fix:");
  write_text(root_ / "c.jsonl", "[18446744073709551615]");
  EXPECT_ERROR(write({"c.jsonl"}), Code::kBadConfig, "line 1, position 0: id 18446744073709551615", "fix:");
  write_text(root_ / "d.bin", raw<uint32_t>({70000}));
  EXPECT_ERROR(write({"d.bin"}, {.raw_type = parse_id_type("uint32")}), Code::kBadConfig, "position 0: id 70000",
               "fix:");
  EXPECT_ERROR(read_token_folder(root_ / "out"), Code::kBadConfig, "no meta.json");
}

TEST_F(IdFolder, SaysWhatIsWrongWithAFile) {
  const auto refused = [&](const std::string& name, const std::string& text) {
    write_text(root_ / name, text);
    write({name});
  };
  EXPECT_ERROR(write({"no.npy"}), Code::kBadConfig, "there is no file", "no.npy", "fix:");
  EXPECT_ERROR(refused("a.bin", "xx"), Code::kBadConfig, "a.bin is neither .npy nor .jsonl", "fix: --dtype uint16");
  EXPECT_ERROR(refused("a.npy", "not numpy's format"), Code::kBadConfig, "starts with \\x93NUMPY", "fix:");
  EXPECT_ERROR(refused("a.npy", npy(">u2", "(1,)", "xx")), Code::kBadConfig, "elements are '>u2'", "little-endian",
               "fix: numpy.save");
  EXPECT_ERROR(refused("a.npy", npy("<f4", "(1,)", "xxxx")), Code::kBadConfig, "elements are '<f4'", "fix:");
  EXPECT_ERROR(refused("a.npy", npy("<u2", "(2, 3)", "xxxxxxxxxxxx")), Code::kBadConfig, "its shape is (2, 3)", "fix:");
  EXPECT_ERROR(refused("a.npy", npy("<u2", "(3,)", "xxxx")), Code::kCorruptFile, "states 3 ids of 2 bytes, but 4",
               "fix:");
  EXPECT_ERROR(refused("a.npy", npy("<u2", "(3,)", "").substr(0, 40)), Code::kCorruptFile,
               "header of 118 bytes is cut");
  EXPECT_ERROR(refused("a.jsonl", "[1]\n{\"ids\": [1]}\n"), Code::kBadConfig, "line 2: it is no JSON array", "fix:");
  EXPECT_ERROR(refused("a.jsonl", "[1, 2.5]"), Code::kBadConfig, "line 1, position 1: 2.5 is no integer", "fix:");
  EXPECT_ERROR(refused("a.jsonl", "\n[]\n"), Code::kBadConfig, "the files hold no ids", "fix:");
  write_text(root_ / "odd.bin", "xyz");
  EXPECT_ERROR(write({"odd.bin"}, {.raw_type = parse_id_type("uint16")}), Code::kBadConfig,
               "3 bytes, no multiple of the 2", "fix:");
  EXPECT_ERROR(parse_id_type("float32"), Code::kBadConfig, "float32", "fix: --dtype uint16");
  EXPECT_ERROR(write_id_folder({.files = {root_ / "odd.bin"}, .out = root_ / "out"}), Code::kBadConfig,
               "fix: --vocab N");
  EXPECT_ERROR(write({"odd.bin"}, {.vocabulary_size = 9, .end_of_text = 9}), Code::kBadConfig, "--end-of-text 9",
               "fix:");
}

}  // namespace
}  // namespace herd
