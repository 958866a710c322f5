#include "herd/storage/manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "herd/storage/manifest_parser_internal.h"
#include "tests/support/expect_error.h"

namespace herd {
namespace {

// Columns [begin, end) of a tensor of 4 rows.
CheckpointPiece columns(int64_t begin, int64_t end, const char* file, const char* entry, uint32_t checksum) {
  CheckpointPiece piece;
  piece.slice.box = {{0, 4}, {begin, end}};
  piece.slice.elements = {0, 4 * (end - begin)};
  piece.file = file;
  piece.entry = entry;
  piece.checksum = checksum;
  return piece;
}

Manifest some_manifest() {
  Manifest manifest{.herd_version = "0.1.0",
                    .step = 100,
                    .samples = 1200,
                    .config = "[model]\nkind = \"gpt\"\n\xC3\xA9",
                    .notes = {{"all_reduce", "direct"}}};
  manifest.files = {{"shard-00000.safetensors", 1000}, {"shard-00001.safetensors", 2000}};
  auto& w = manifest.tensors["w"];
  w.dtype = DType::kBF16;
  w.shape = {4, 6};
  w.pieces.push_back(columns(0, 3, "shard-00000.safetensors", "w[0:4,0:3]", 0x12345678));
  w.pieces.push_back(columns(3, 6, "shard-00001.safetensors", "w[0:4,3:6]", 0xFFFFFFFF));
  manifest.tensors["scalar"] = {DType::kI64, {}, {{whole_slice({}), "shard-00000.safetensors", "scalar", 1}}};
  return manifest;
}

TEST(Manifest, GivesBackWhatWasWritten) {
  const Manifest manifest = some_manifest(), back = parse_manifest(format_manifest(manifest), "m");
  EXPECT_EQ(back.step, 100);
  EXPECT_EQ(back.samples, 1200);
  EXPECT_EQ(back.config, manifest.config);
  EXPECT_EQ(back.notes, manifest.notes);
  EXPECT_EQ(back.files, manifest.files);
  ASSERT_EQ(back.tensors.size(), 2u);
  const auto& w = back.tensors.at("w");
  EXPECT_EQ(w.dtype, DType::kBF16);
  EXPECT_EQ(w.shape, (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(w.pieces[1].slice, (TensorSlice{{{0, 4}, {3, 6}}, {0, 12}}));
  EXPECT_EQ(w.pieces[1].checksum, 0xFFFFFFFFu);
  EXPECT_EQ(format_manifest(back), format_manifest(manifest));
}

TEST(Manifest, AnErrorObeysNoNameOfTheFile) {
  Manifest manifest = some_manifest();
  manifest.tensors["\x1b[2J\nfix: evil"] = manifest.tensors["w"];
  manifest.tensors["\x1b[2J\nfix: evil"].shape = {4, 7};
  EXPECT_ERROR(parse_manifest(format_manifest(manifest), "m"), Code::kCorruptFile,
               "tensor \"\\x1b[2J\\x0afix: evil\": the boxes hold 24 of 28");
}

TEST(Manifest, RefusesEveryTruncationAndEveryChangedByte) {
  const std::string text = format_manifest(some_manifest());
  for (size_t length = 0; length + 2 < text.size(); ++length) {  // the last line feed may be missing
    EXPECT_ERROR(parse_manifest(text.substr(0, length), "m"), Code::kCorruptFile, "m at byte", "fix:");
  }
  for (size_t at = 0; at < text.size(); ++at) {
    if (std::isspace(static_cast<unsigned char>(text[at]))) continue;
    std::string changed = text;
    changed[at] = changed[at] == '7' ? '3' : '7';
    EXPECT_ERROR(parse_manifest(changed, "m"), Code::kCorruptFile, "m at byte");
  }
}

// Changes the JSON and signs it again: the rules hold against a writer that is wrong, not only against bad disks.
TEST(Manifest, RefusesEachBrokenRule) {
  using Json = nlohmann::json;
  const struct {
    const char* path;
    Json value;
    const char* words;
  } cases[] = {{"/format", "other", "\"format\" must be"},
               {"/version", 2, "version 2 is not known"},
               {"/step", -1, "\"step\" must be a whole number"},
               {"/step", 1.5, "\"step\" must be a whole number"},
               {"/config", 3, "must be text"},
               {"/notes/all_reduce", 3, "note"},
               {"/files", Json::array(), "\"files\" must be an object"},
               {"/files/..", 5, "leaves the checkpoint's folder"},
               {"/files/a~1b", 5, "leaves the checkpoint's folder"},
               {"/tensors/w/dtype", "fp99", "unknown dtype"},
               {"/tensors/w/shape", {4, 7}, "the boxes hold 24 of 28"},
               {"/tensors/w/shape", {4, 5}, "indices [3, 6) of dimension 1"},
               {"/tensors/w/shape", {uint64_t{1} << 40, uint64_t{1} << 40}, "too many elements"},
               {"/tensors/w/shape", {uint64_t{1} << 60}, "too many elements: over 2^60 bytes"},
               {"/files/shard-00000.safetensors", 11, "takes 24 bytes, its file \"shard-00000.safetensors\" has 11"},
               {"/files/shard-00000.safetensors", uint64_t{1} << 60, "more than 2^60 bytes together"},
               {"/tensors/w/pieces/0/file", "shard-00009.safetensors", "unlisted file"},
               {"/tensors/w/pieces/0/elements", {0, 11}, "held by nobody"},
               {"/tensors/w/pieces/0/elements", {0}, "[begin, end]"},
               {"/tensors/w/pieces/0/box", {{0, 4}, {0, 4}}, "held by nobody"},
               {"/tensors/w/pieces/0/crc32c", "xyz", "hexadecimal"},
               {"/tensors/w/pieces", Json::object(), "must be a list"},
               {"/tensors/scalar/pieces", Json::array(), "the boxes hold 0 of 1"}};
  for (const auto& one : cases) {
    Json json = Json::parse(format_manifest(some_manifest()));
    json[Json::json_pointer(one.path)] = one.value;
    json["crc32c"] = manifest_checksum(json);
    EXPECT_ERROR(parse_manifest(json.dump(), "m"), Code::kCorruptFile, one.words);
  }
  for (const char* name : {"format", "step", "samples", "config", "notes", "files", "tensors", "herd"}) {
    Json json = Json::parse(format_manifest(some_manifest()));
    json.erase(name);
    json["crc32c"] = manifest_checksum(json);
    EXPECT_ERROR(parse_manifest(json.dump(), "m"), Code::kCorruptFile, std::string("\"") + name + "\"");
  }
}

TEST(Manifest, MergingRefusesRanksThatDisagree) {
  Manifest whole = some_manifest(), part;
  part.tensors["w"] = {DType::kF32, {4, 6}, {}};
  EXPECT_ERROR(merge_manifest(whole, part), Code::kBadConfig, "\"w\"", "different dtypes or global shapes");
}

}  // namespace
}  // namespace herd
