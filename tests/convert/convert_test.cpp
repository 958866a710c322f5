// Weights out to GPT-2's format and back: same bits; 16 bits as rounded; what can't be converted says why.
#include "herd/convert/convert.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>

#include "herd/convert/gpt2_names.h"
#include "herd/kernels/half.h"
#include "herd/storage/safetensors.h"
#include "model_fixture.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensor_bytes.h"

namespace herd::convert {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

std::vector<float> floats_in(const SafetensorsFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  if (entry == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(entry->size() / 4));
  file.read(*entry, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

Converted to_gpt2(const fs::path& source, const fs::path& out) {
  return convert({.source = source, .out = out, .to = Format::kGpt2}, unsynced_files());
}

// Rewrites model.safetensors with other names, tensors left out or added.
void rename_tensors(const fs::path& folder, const std::function<std::string(const std::string&)>& name,
                    const std::string& extra = {}, const fs::path& as = "model.safetensors") {
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> bytes;
  {
    const SafetensorsFile file(folder / "model.safetensors");
    for (const TensorEntry& entry : file.tensors()) {
      const std::string other = name(entry.name);
      if (other.empty()) continue;
      entries.push_back({other, entry.type, entry.shape});
      bytes[other] = bytes_of(file, entry);
    }
  }
  if (!extra.empty()) entries.push_back({extra, "U8", {1}}), bytes[extra] = "x";
  SafetensorsWriter writer(folder / as, entries, {{"format", "pt"}}, unsynced_files());
  for (const TensorEntry& entry : writer.entries()) writer.append(std::as_bytes(std::span(bytes.at(entry.name))));
  writer.commit();
}

std::string same(const std::string& name) { return name; }

TEST(Convert, WritesGpt2NamesWithLinearLayersTurned) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  const Converted done = to_gpt2(checkpoint, root / "gpt2");
  const SafetensorsFile file(root / "gpt2/model.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().size(), 2u + 2 * 12 + 2) << "no moments, no head: it is tied";
  EXPECT_EQ(done.bytes, 4 * done.parameters);
  EXPECT_EQ(floats_in(file, "wte.weight"), floats_of(checkpoint, "wte.weight"));
  EXPECT_EQ(floats_in(file, "h.1.attn.c_attn.bias"), floats_of(checkpoint, "h.1.attn.qkv.bias"));
  const auto theirs = floats_in(file, "h.1.mlp.c_fc.weight"), mine = floats_of(checkpoint, "h.1.mlp.up.weight");
  EXPECT_EQ(file.find("h.1.mlp.c_fc.weight")->shape, (std::vector<int64_t>{36, 50}));
  for (size_t out = 0; out < 50; ++out)
    for (size_t in = 0; in < 36; ++in) ASSERT_EQ(theirs[in * 50 + out], mine[out * 36 + in]);
}

TEST(Convert, ThereAndBackGivesTheSameBits) {
  for (const char* tie : {"true", "false"}) {
    TemporaryFolder root;
    auto run = small_run({std::string("model.tie_embeddings=") + tie});
    if (run.model.tie_embeddings) run.model.ffn = 30011;  // over a block
    const auto checkpoint = save_model(root / "runs", run);
    to_gpt2(checkpoint, root / "gpt2");
    const Converted back = convert({.source = root / "gpt2", .out = root / "back"}, unsynced_files());
    EXPECT_EQ(back.run.model, run.model);
    CheckpointReader saved(checkpoint), reader(root / "back");
    reader.verify();
    EXPECT_EQ(reader.manifest().tensors.size(), weights_of(run).size());
    for (const Weight& weight : weights_of(run))
      EXPECT_EQ(bytes_of(reader, weight.name), bytes_of(saved, weight.name)) << weight.name;
    to_gpt2(root / "back", root / "again");
    EXPECT_EQ(contents_of(root / "again"), contents_of(root / "gpt2"));
  }
}

TEST(Convert, RoundsWeightsTo16Bits_AndKeepsTheStepAndTheRunFile) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  for (const Format format : {Format::kHerd, Format::kGpt2}) {
    const auto out = root / (format == Format::kHerd ? "bf16" : "gpt2"), wide = out / "../wide";
    convert({.source = checkpoint, .out = out, .to = format, .dtype = DType::kBF16}, unsynced_files());
    convert({.source = out, .out = wide, .replace = Replace::kModels}, unsynced_files());
    for (const Weight& weight : weights_of(small_run())) {
      const auto exact = floats_of(checkpoint, weight.name), rounded = floats_of(wide, weight.name);
      for (size_t i = 0; i < exact.size(); ++i)
        ASSERT_EQ(rounded[i], kernels::float_from_bf16(kernels::bf16_from_float(exact[i]))) << weight.name;
    }
  }
  const Manifest manifest = read_manifest(root / "bf16");
  EXPECT_EQ(manifest.step, 5);
  EXPECT_EQ(manifest.config, spec::to_toml(small_run()));
  EXPECT_EQ(manifest.notes.at(kContentNote), kWeightsOnly);
  EXPECT_EQ(manifest.tensors.at("wte.weight").dtype, DType::kBF16);
  EXPECT_FALSE(manifest.tensors.contains("wte.weight.exp_avg"));
}

TEST(Convert, RefusesAWeightThatFp16CanNotHold) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  to_gpt2(checkpoint, root / "gpt2");
  std::string file = read_text(root / "gpt2/model.safetensors");
  const float large = 70000;
  std::memcpy(file.data() + file.size() - 4, &large, sizeof large);
  write_text(root / "gpt2/model.safetensors", file);
  EXPECT_ERROR(convert({.source = root / "gpt2", .out = root / "out", .dtype = DType::kF16}), Code::kBadConfig,
               "ln_f.bias", "70000", "fix: --dtype bf16");
  EXPECT_FALSE(fs::exists(root / "out"));
}

TEST(Convert, KeepsTheTokenizerOfAModelThatItReplaces_AndConvertsNoFolderIntoItself) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  to_gpt2(checkpoint, root / "gpt2");
  write_text(root / "gpt2/tokenizer.json", "mine");
  const std::string weights = read_text(root / "gpt2/model.safetensors");
  EXPECT_ERROR(convert({.source = root / "gpt2", .out = root / "gpt2/../gpt2", .replace = Replace::kModels}),
               Code::kBadConfig, "--out is the folder that is converted", "fix:");
  EXPECT_EQ(read_text(root / "gpt2/model.safetensors"), weights);
  const auto whole = contents_of(checkpoint);
  EXPECT_ERROR(convert({.source = root / "runs", .out = checkpoint, .replace = Replace::kModels}), Code::kBadConfig,
               "--out is the folder that is converted", "fix:");
  EXPECT_EQ(contents_of(checkpoint), whole) << "of a folder of checkpoints, the newest is converted";
  convert({.source = checkpoint, .out = root / "gpt2", .to = Format::kGpt2, .replace = Replace::kModels},
          unsynced_files());
  EXPECT_EQ(read_text(root / "gpt2/tokenizer.json"), "mine");
}

TEST(Convert, TakesFoldersAsOtherProgramsWriteThem) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  to_gpt2(checkpoint, root / "gpt2");
  const auto in_two = [](bool first) {
    return [first](const std::string& name) { return name.starts_with("h.0") == first ? "transformer." + name : ""; };
  };
  rename_tensors(root / "gpt2", in_two(true), "transformer.h.0.attn.bias", "model-00001-of-00002.safetensors");
  rename_tensors(root / "gpt2", in_two(false), "transformer.h.1.attn.masked_bias", "model-00002-of-00002.safetensors");
  fs::remove(root / "gpt2/model.safetensors");
  convert({.source = root / "gpt2", .out = root / "back"}, unsynced_files());
  for (const Weight& weight : weights_of(small_run()))
    EXPECT_EQ(bytes_of(root / "back", weight.name), bytes_of(checkpoint, weight.name)) << weight.name;
}

TEST(Convert, NamesWhatIsMissingExtraTwiceOrOfAnotherShape) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  const auto broken = [&](const auto& name, const std::string& extra = {}) {
    fs::remove_all(root / "gpt2");
    to_gpt2(checkpoint, root / "gpt2");
    rename_tensors(root / "gpt2", name, extra);
    return convert({.source = root / "gpt2", .out = root / "out"}, unsynced_files());
  };
  EXPECT_ERROR(broken([](const std::string& name) { return name == "ln_f.bias" ? "" : name; }), Code::kBadConfig,
               "lacks \"ln_f.bias\"", "fix:");
  write_text(root / "index.json", R"({"weight_map": {"transformer.ln_f.bias": "model-00002-of-00002.safetensors"}})");
  fs::rename(root / "index.json", root / "gpt2/model.safetensors.index.json");
  EXPECT_ERROR(convert({.source = root / "gpt2", .out = root / "out"}), Code::kBadConfig, "lacks \"ln_f.bias\"",
               "model.safetensors.index.json says is in model-00002-of-00002.safetensors", "fix: put that file");
  EXPECT_ERROR(broken(same, "h.2.ln_1.bias"), Code::kBadConfig, "holds \"h.2.ln_1.bias\"", "does not have");
  EXPECT_ERROR(broken(same, "transformer.ln_f.bias"), Code::kBadConfig, "\"ln_f.bias\" is there twice", "fix:");
  EXPECT_ERROR(broken([](const std::string& name) {
                 return name == "wte.weight" ? "wpe.weight" : name == "wpe.weight" ? "wte.weight" : name;
               }),
               Code::kBadConfig, "\"wte.weight\" is F32 7 x 36, config.json asks for 101 x 36");
  EXPECT_FALSE(fs::exists(root / "out"));
}

// A second copy of the embedding's bytes as lm_head.weight, the last of them changed by `change`.
void add_head(const fs::path& folder, const std::function<void(float&)>& change, int64_t columns = 36) {
  std::vector<TensorEntry> entries = {{"lm_head.weight", "F32", {101 * 36 / columns, columns}}};
  std::string bytes;
  {
    const SafetensorsFile file(folder / "model.safetensors");
    bytes = bytes_of(file, *file.find("wte.weight"));
  }
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 4, 4);
  change(last);
  std::memcpy(bytes.data() + bytes.size() - 4, &last, 4);
  SafetensorsWriter writer(folder / "head.safetensors", entries, {}, unsynced_files());
  writer.append(std::as_bytes(std::span(bytes)));
  writer.commit();
}

TEST(Convert, LeavesATiedHeadOut_AndRefusesOneThatDiffers) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  to_gpt2(checkpoint, root / "gpt2");
  add_head(root / "gpt2", [](float&) {});
  convert({.source = root / "gpt2", .out = root / "same"}, unsynced_files());
  EXPECT_FALSE(read_manifest(root / "same").tensors.contains("head.weight"));

  add_head(root / "gpt2", [](float& last) { last = std::nextafter(last, 9.0f); });
  const auto refused = [&] { return convert({.source = root / "gpt2", .out = root / "out"}, unsynced_files()); };
  EXPECT_ERROR(refused(), Code::kBadConfig, "head.safetensors: config.json ties", "row 100, column 35",
               "fix: \"tie_word_embeddings\": false in ", "config.json");
  add_head(
      root / "gpt2", [](float&) {}, 101 * 36);
  EXPECT_ERROR(refused(), Code::kBadConfig, "\"lm_head.weight\" is F32 1 x 3636", "fix:");
  EXPECT_FALSE(fs::exists(root / "out"));

  add_head(root / "gpt2", [](float& last) { last = 7; });
  std::string config = read_text(root / "gpt2/config.json");
  const std::string tied = "\"tie_word_embeddings\": true";
  write_text(root / "gpt2/config.json",
             config.replace(config.find(tied), tied.size(), "\"tie_word_embeddings\": false"));
  EXPECT_EQ(refused().run.model.tie_embeddings, false);
  EXPECT_EQ(floats_of(root / "out", "head.weight").back(), 7);
}

TEST(Convert, DoesNotWaitForAFifo_InPlaceOfAnyFile) {
  TemporaryFolder root;
  to_gpt2(save_model(root / "runs", small_run()), root / "gpt2");
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::rename(root / "gpt2" / name, root / name);
    ASSERT_EQ(::mkfifo((root / "gpt2" / name).c_str(), 0600), 0);
    EXPECT_ERROR(convert({.source = root / "gpt2", .out = root / "out"}, unsynced_files()), Code::kStorage, name,
                 "which must be a file", "fix:");
    fs::rename(root / name, root / "gpt2" / name);
  }
  ASSERT_EQ(::mkfifo((root / "gpt2/model.safetensors.index.json").c_str(), 0600), 0);
  convert({.source = root / "gpt2", .out = root / "out"}, unsynced_files());  // is not needed
}

TEST(Convert, NamesWhatIsNoFile_InPlaceOfAnyFile) {
  TemporaryFolder root;
  to_gpt2(save_model(root / "runs", small_run()), root / "gpt2");
  const auto refused = [&] { return convert({.source = root / "gpt2", .out = root / "out"}, unsynced_files()); };
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"}) {
    ASSERT_EQ(::mkfifo((root / "gpt2" / name).c_str(), 0600), 0);
    EXPECT_ERROR(refused(), Code::kStorage, name, "which must be a file", "fix:");
    fs::remove(root / "gpt2" / name);
    fs::create_directory(root / "gpt2" / name);
    EXPECT_ERROR(refused(), Code::kStorage, name, "which must be a file", "fix:");
    fs::remove(root / "gpt2" / name);
    fs::create_symlink("nowhere", root / "gpt2" / name);
    EXPECT_ERROR(refused(), Code::kStorage, name, "fix:");
    fs::remove(root / "gpt2" / name);
  }
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::rename(root / "gpt2" / name, root / name);
    fs::create_directory(root / "gpt2" / name);
    EXPECT_ERROR(refused(), Code::kStorage, name, "which must be a file", "fix:");
    fs::remove(root / "gpt2" / name);
    fs::rename(root / name, root / "gpt2" / name);
  }
  EXPECT_FALSE(fs::exists(root / "out"));
}

TEST(Convert, RefusesAPointerOfGitLfs_InPlaceOfAnyFile) {
  TemporaryFolder root;
  to_gpt2(save_model(root / "runs", small_run()), root / "gpt2");
  for (const char* name : {"tokenizer.model", "tokenizer.json", "generation_config.json", "config.json"}) {
    const bool was_there = fs::exists(root / "gpt2" / name);
    const std::string before = was_there ? read_text(root / "gpt2" / name) : "";
    write_text(root / "gpt2" / name, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 493443\n");
    EXPECT_ERROR(convert({.source = root / "gpt2", .out = root / "out"}, unsynced_files()), Code::kBadConfig,
                 std::string(name) + " is a pointer of Git LFS", "fix: git lfs pull");
    was_there ? write_text(root / "gpt2" / name, before) : static_cast<void>(fs::remove(root / "gpt2" / name));
  }
  EXPECT_FALSE(fs::exists(root / "out"));
}

TEST(Convert, SaysHowWeightsOfOtherTypesAreRead) {
  TemporaryFolder root;
  to_gpt2(save_model(root / "runs", small_run()), root / "gpt2");
  for (const auto& [type, bytes, fix] : {std::tuple("F64", 8, "fix: in Python, AutoModelForCausalLM.from_pretrained("),
                                         {"I8", 1, "fix: the weights as they were before they were quantized"}}) {
    std::vector<TensorEntry> entries;
    {
      const SafetensorsFile file(root / "gpt2/model.safetensors");
      for (const TensorEntry& entry : file.tensors()) entries.push_back({entry.name, type, entry.shape});
    }
    SafetensorsWriter writer(root / "gpt2/model.safetensors", entries, {{"format", "pt"}}, unsynced_files());
    writer.append(std::vector<std::byte>(static_cast<size_t>(writer.entries().back().end)));
    writer.commit();
    EXPECT_ERROR(convert({.source = root / "gpt2", .out = root / "out"}, unsynced_files()), Code::kBadConfig,
                 std::string("is ") + type + " ", "but weights are read in F32, BF16 or F16", fix);
  }
}

TEST(Convert, ReadsTheFilesOfTheIndex_BesideTheSameWeightsInAnotherFormat) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  to_gpt2(checkpoint, root / "gpt2");
  const auto renamed = [](const std::string& name) { return name == "wte.weight" ? name : "theirs." + name; };
  rename_tensors(root / "gpt2", renamed, {}, "consolidated.safetensors");
  const auto back = [&](const char* name) {
    convert({.source = root / "gpt2", .out = root / name}, unsynced_files());
    for (const Weight& weight : weights_of(small_run()))
      EXPECT_EQ(bytes_of(root / name, weight.name), bytes_of(checkpoint, weight.name)) << weight.name;
  };
  back("without_index");
  fs::copy(root / "gpt2/consolidated.safetensors", root / "gpt2/theirs.safetensors");
  write_text(root / "gpt2/model.safetensors.index.json", R"({"weight_map": {"wte.weight": "model.safetensors"}})");
  back("with_index");
}

TEST(Convert, CallsANanInEmbeddingAndTiedHeadNoDifference_ButRefusesIt) {
  TemporaryFolder root;
  to_gpt2(save_model(root / "runs", small_run()), root / "gpt2");
  const fs::path path = root / "gpt2/model.safetensors";
  const int64_t end = [&] {
    const SafetensorsFile file(path);
    const TensorEntry& entry = *file.find("wte.weight");
    return file.offset(entry) + entry.size();
  }();
  std::string text = read_text(path);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(text.data() + end - 4, &nan, sizeof nan);
  write_text(path, text);
  add_head(root / "gpt2", [](float&) {});
  EXPECT_ERROR(convert({.source = root / "gpt2", .out = root / "out"}, unsynced_files()), Code::kBadConfig,
               "weight \"wte.weight\"", "is not finite", "NaN, at [100, 35]");
}

TEST(Convert, NotesTheEndsOfText_OfTheGenerationConfigFirst) {
  TemporaryFolder root;
  to_gpt2(save_model(root / "runs", small_run()), root / "gpt2");
  const auto ends = [&](const char* name) {
    convert({.source = root / "gpt2", .out = root / name}, unsynced_files());
    return text_ends_of(read_manifest(root / name).notes, {});
  };
  EXPECT_EQ(ends("config"), default_text_ends());
  write_text(root / "gpt2/generation_config.json", R"({"eos_token_id": [9, 50256]})");
  EXPECT_EQ(ends("generation"), (TextEnds{std::nullopt, {9, 50256}}));
}

TEST(Convert, CarriesTheTokenizerAndTheGenerationConfigAlong_ThereAndBack) {
  TemporaryFolder root;
  to_gpt2(save_model(root / "runs", small_run()), root / "gpt2");
  const Companions theirs = {{"tokenizer.json", "{}"},
                             {"vocab.json", "{\"a\": 0}"},
                             {"merges.txt", "#version: 0.2\n"},
                             {"tokenizer_config.json", "{\"model_max_length\": 7}"},
                             {"generation_config.json", "{\"eos_token_id\": [9, 50256], \"temperature\": 0.5}"}};
  write_companions(root / "gpt2", theirs, unsynced_files());
  write_text(root / "gpt2/README.md", "not of the model");
  const Converted in = convert({.source = root / "gpt2", .out = root / "herd"}, unsynced_files());
  EXPECT_EQ(in.companions.size(), 5u);
  EXPECT_EQ(read_companions(root / "herd"), theirs);
  EXPECT_FALSE(fs::exists(root / "herd/README.md"));
  CheckpointReader(root / "herd").verify();
  reshard({.source = root / "herd", .out = root / "two", .ranks = 2}, unsynced_files());
  to_gpt2(root / "two", root / "again");
  EXPECT_EQ(read_companions(root / "again"), theirs) << "byte for byte";
}

TEST(Convert, NamesTheEndsThatTheModelKnowsByNow_InTheGenerationConfig) {
  TemporaryFolder root;
  to_gpt2(save_model(root / "runs", small_run()), root / "gpt2");
  write_text(root / "gpt2/generation_config.json", "{\"eos_token_id\": 9, \"temperature\": 0.5}");
  convert({.source = root / "gpt2", .out = root / "herd"}, unsynced_files());
  Manifest manifest = read_manifest(root / "herd");
  write_text_ends({4, {5, 6}}, manifest.notes);
  write_manifest(root / "herd", manifest, unsynced_files());
  to_gpt2(root / "herd", root / "again");
  const std::string config = read_text(root / "again/generation_config.json");
  EXPECT_EQ(parse_generation_config(config, "config"), (TextEnds{4, {5, 6}}));
  EXPECT_NE(config.find("\"temperature\": 0.5"), std::string::npos);
}

TEST(Convert, CopiesATokenizerThatIsLinkedTo_WithItsPermissions) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  to_gpt2(checkpoint, root / "gpt2");
  write_text(root / "secret.model", "mine");
  fs::permissions(root / "secret.model", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(root / "secret.model", root / "gpt2/tokenizer.model");
  convert({.source = root / "gpt2", .out = root / "one"}, unsynced_files());
  reshard({.source = root / "one", .out = root / "two", .ranks = 2}, unsynced_files());
  for (const char* name : {"one", "two"}) {
    const auto status = fs::symlink_status(root / name / "tokenizer.model");
    EXPECT_EQ(status.type(), fs::file_type::regular) << name;
    EXPECT_EQ(status.permissions(), fs::perms::owner_read | fs::perms::owner_write) << name;
  }
}

TEST(Convert, NamesTheLineOfTheRunFileInAManifest) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  Manifest manifest = read_manifest(checkpoint);
  manifest.config = "[model]\nlayers = 0\n";
  write_manifest(checkpoint, manifest, unsynced_files());
  const std::string place = "model.layers (the run file in " + (checkpoint / "manifest.json").string() + ", line 2)";
  EXPECT_ERROR(open_weights(checkpoint), Code::kBadConfig, place);
  EXPECT_ERROR(reshard({.source = checkpoint, .out = root / "out"}), Code::kBadConfig,
               "model.layers (the run file in manifest.json, line 2)");
}

TEST(Convert, WarnsWhereNoTokenizerGoesAlong) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run({"data.path=data/mine"}));
  const Converted without = to_gpt2(checkpoint, root / "gpt2");
  ASSERT_EQ(without.warnings.size(), 1u);
  EXPECT_NE(
      without.warnings[0].find("no tokenizer goes along: neither " + checkpoint.string() + " nor data/mine holds"),
      std::string::npos)
      << without.warnings[0];
  EXPECT_NE(without.warnings[0].find("fix: put the tokenizer"), std::string::npos);
  write_text(root / "gpt2/tokenizer.json", "{}");
  EXPECT_TRUE(convert({.source = root / "gpt2", .out = root / "herd"}, unsynced_files()).warnings.empty());
  const auto random = save_model(root / "random", small_run({"data.kind=random"}));
  EXPECT_TRUE(to_gpt2(random, root / "of_random").warnings.empty()) << "random data has no tokenizer";
}

TEST(ConvertLlama, WarnsOfAWidthThatIsNoMultipleOfTheHeads) {
  TemporaryFolder root;
  const Strings llama = {"model.kind=llama", "model.head_width=10", "model.tie_embeddings=false", "data.kind=random"};
  const auto warnings = [&](const std::string& width) {
    Strings overrides = llama;
    overrides.push_back("model.width=" + width);
    const auto checkpoint = save_model(root / ("runs" + width), small_run(overrides));
    return convert({.source = checkpoint, .out = root / ("llama" + width), .to = Format::kLlama}, unsynced_files())
        .warnings;
  };
  EXPECT_TRUE(warnings("36").empty());
  const Strings found = warnings("38");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("38 % 3 = 2"), std::string::npos);
  EXPECT_NE(found[0].find("fix: model.heads"), std::string::npos);
  convert({.source = root / "llama38", .out = root / "back"}, unsynced_files());
  EXPECT_EQ(floats_of(root / "back", "h.1.attn.qkv.weight"),
            floats_of(find_weights(root / "runs38"), "h.1.attn.qkv.weight"));
}

TEST(Convert, AddsWhatTheSourceDoesNotHold) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run());
  write_companions(checkpoint, {{"tokenizer.json", "own"}}, unsynced_files());
  const auto more = [](const WeightSource&) { return Companions{{"tokenizer.json", "other"}, {"vocab.json", "{}"}}; };
  convert({.source = checkpoint, .out = root / "gpt2", .to = Format::kGpt2, .extra_companions = more},
          unsynced_files());
  EXPECT_EQ(read_companions(root / "gpt2"), (Companions{{"tokenizer.json", "own"}, {"vocab.json", "{}"}}));
}

TEST(Convert, RefusesWhatHasNoWeights) {
  TemporaryFolder root;
  TemporaryFolder others;
  const auto open = [&](const char* name) { open_weights(others / name); };
  for (const char* name : {"empty", "other", "alone"}) fs::create_directory(others / name);
  write_text(others / "other/thesis.tex", "");
  write_text(others / "alone/model.safetensors", "");
  EXPECT_ERROR(open("nowhere"), Code::kBadConfig, "there is no folder", "nowhere", "fix: a checkpoint");
  EXPECT_ERROR(open("empty"), Code::kBadConfig, "no manifest.json", "no config.json", "holds nothing", "fix:");
  EXPECT_ERROR(open("other"), Code::kBadConfig, "it holds thesis.tex", "fix:");
  EXPECT_ERROR(open("other/thesis.tex"), Code::kBadConfig, "is a file", "fix: " + (others / "other").string());
  fs::create_directories(others / "cache/snapshots/607a30d");
  write_text(others / "cache/snapshots/607a30d/config.json", "{}");
  EXPECT_ERROR(open("cache"), Code::kBadConfig, "is a download cache (snapshots)",
               "fix: " + (others / "cache/snapshots/607a30d").string());
  EXPECT_ERROR(open("alone"), Code::kBadConfig, "holds model.safetensors, but no config.json", "fix:");
  write_text(root / "config.json", format_gpt2_config({.model = small_run().model}, "float32"));
  EXPECT_ERROR(convert({.source = root.path(), .out = root / "out"}), Code::kBadConfig,
               "no *.safetensors, but config.json", "fix:");
  write_text(root / "pytorch_model.bin", "");
  EXPECT_ERROR(convert({.source = root.path(), .out = root / "out"}), Code::kBadConfig,
               "config.json, pytorch_model.bin, and other formats of weights are not read", "fix: in Python",
               "safe_serialization=True");
  write_text(root / "model.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 548105171\n");
  EXPECT_ERROR(convert({.source = root.path(), .out = root / "out"}), Code::kBadConfig,
               "model.safetensors is a pointer of Git LFS", "fix: git lfs pull");
  EXPECT_ERROR(to_gpt2(save_model(root / "runs", small_run({"model.norm=rmsnorm"})), root / "out"), Code::kBadConfig,
               "model.norm = \"rmsnorm\"", "fix: --to herd");
  EXPECT_FALSE(fs::exists(root / "out"));
}

std::vector<std::string> llama(const std::string& tie) {
  return {"model.kind=llama", "model.kv_heads=1", "model.head_width=16", "model.tie_embeddings=" + tie};
}

TEST(ConvertLlama, ThereAndBackGivesTheSameBits_OfAnyTypeInOneFileOrSeveral) {
  for (const char* tie : {"true", "false"}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      TemporaryFolder root;
      const auto run = small_run(llama(tie));
      const auto checkpoint = save_model(root / "runs", run);
      const auto to_llama = [&](const fs::path& source, const fs::path& out) {
        convert({.source = source, .out = out, .to = Format::kLlama, .dtype = dtype}, unsynced_files());
      };
      to_llama(checkpoint, root / "llama");
      const SafetensorsFile file(root / "llama/model.safetensors");
      EXPECT_EQ(file.tensors().size(), 2u + 2 * 9 + (run.model.tie_embeddings ? 0 : 1));
      ASSERT_NE(file.find("model.layers.1.self_attn.k_proj.weight"), nullptr);
      EXPECT_EQ(file.find("model.layers.1.self_attn.k_proj.weight")->shape, (std::vector<int64_t>{16, 36}));
      EXPECT_EQ(file.find("lm_head.weight") != nullptr, !run.model.tie_embeddings);
      if (dtype == DType::kF32) {  // q, k and v are the rows of one matrix
        const auto all = floats_of(checkpoint, "h.1.attn.qkv.weight");
        const auto k = floats_in(file, "model.layers.1.self_attn.k_proj.weight");
        EXPECT_TRUE(std::equal(k.begin(), k.end(), all.begin() + 48 * 36));
      }
      fs::copy(root / "llama", root / "cut");
      const auto in_two = [](bool first) {
        return [first](const std::string& name) { return (name.find(".k_proj") != name.npos) == first ? name : ""; };
      };
      rename_tensors(root / "cut", in_two(true), {}, "model-00001-of-00002.safetensors");
      rename_tensors(root / "cut", in_two(false), "model.layers.0.self_attn.rotary_emb.inv_freq",
                     "model-00002-of-00002.safetensors");
      fs::remove(root / "cut/model.safetensors");
      for (const char* from : {"llama", "cut"}) {
        const auto back = root / (std::string("back_") + from);
        EXPECT_EQ(convert({.source = root / from, .out = back, .dtype = dtype}, unsynced_files()).run.model, run.model);
        to_llama(back, root / (std::string("again_") + from));
        EXPECT_EQ(contents_of(root / (std::string("again_") + from)), contents_of(root / "llama"));
        if (dtype == DType::kF32) {
          for (const Weight& weight : weights_of(run))
            EXPECT_EQ(bytes_of(back, weight.name), bytes_of(checkpoint, weight.name)) << weight.name;
        }
      }
    }
  }
}

TEST(ConvertLlama, NamesWhatIsMissingExtraOrInAFileThatIsNotThere) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run(llama("false")));
  const auto broken = [&](const auto& name, const std::string& extra = {}) {
    fs::remove_all(root / "llama");
    convert({.source = checkpoint, .out = root / "llama", .to = Format::kLlama}, unsynced_files());
    rename_tensors(root / "llama", name, extra);
    return convert({.source = root / "llama", .out = root / "out"}, unsynced_files());
  };
  const auto without_k = [](const std::string& name) { return name.find("1.self_attn.k") != name.npos ? "" : name; };
  EXPECT_ERROR(broken(without_k), Code::kBadConfig, "lacks \"layers.1.self_attn.k_proj.weight\"", "fix: put all files");
  write_text(root / "llama/model.safetensors.index.json",
             R"({"weight_map": {"model.layers.1.self_attn.k_proj.weight": "model-00002-of-00002.safetensors"}})");
  EXPECT_ERROR(convert({.source = root / "llama", .out = root / "out"}), Code::kBadConfig,
               "says is in model-00002-of-00002.safetensors", "fix: put that file into the same folder");
  fs::remove(root / "llama/model.safetensors");
  write_text(root / "llama/pytorch_model-00001-of-00002.bin", "");
  EXPECT_ERROR(convert({.source = root / "llama", .out = root / "out"}), Code::kBadConfig,
               "pytorch_model-00001-of-00002.bin, and other formats of weights are not read",
               "safe_serialization=True");
  EXPECT_ERROR(broken(same, "model.layers.0.self_attn.q_proj.bias"), Code::kBadConfig,
               "holds \"layers.0.self_attn.q_proj.bias\", which Llama of its config.json does not have", "fix:");
  EXPECT_ERROR(broken(same, "layers.2.input_layernorm.weight"), Code::kBadConfig,
               "\"layers.2.input_layernorm.weight\"");
  EXPECT_ERROR(broken([](const std::string& name) {
                 return name == "model.layers.0.self_attn.q_proj.weight"   ? "model.layers.0.self_attn.k_proj.weight"
                        : name == "model.layers.0.self_attn.k_proj.weight" ? "model.layers.0.self_attn.q_proj.weight"
                                                                           : name;
               }),
               Code::kBadConfig, "is F32 16 x 36, config.json asks for 48 x 36", "fix:");
  EXPECT_ERROR(convert({.source = checkpoint, .out = root / "out", .to = Format::kGpt2}, unsynced_files()),
               Code::kBadConfig, "model.kind = \"llama\"", "fix:");
  EXPECT_FALSE(fs::exists(root / "out"));
}

}  // namespace
}  // namespace herd::convert
