#include "herd/spec/run_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "herd/base/error.h"
#include "herd/spec/run_keys.h"
#include "herd/strategies/techniques.h"
#include "other_value.h"
#include "tests/golden.h"

namespace herd::spec {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& toml, std::vector<std::string> overrides = {}) {
  try {
    parse_run_text(toml, "run.toml", overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    return error.message();
  }
  return "";
}

TEST(RunFile, IsAllDefaults_WhenEmpty) {
  RunFile expected;
  expected.model.kv_heads = 12;
  expected.model.head_width = 64;
  expected.model.ffn = 3072;
  EXPECT_EQ(parse_run_text("", "run.toml"), expected);
}

TEST(RunFile, ReadsEveryType) {
  const RunFile run = parse_run_text(
      "[model]\nlayers = 3\ndropout = 0.1\ntie_embeddings = false\n[optimizer]\nlr = 1\nbetas = [0.8, 0.99]\n"
      "[memory]\ndevice_budget = \"4GiB\"\nhost_budget = 1000\n[strategy]\nrecompute = \"every:2\"\n[log]\nname = \"a "
      "b\"\n",
      "run.toml");
  EXPECT_EQ(run.model.layers, 3);
  EXPECT_EQ(run.model.dropout, 0.1);
  EXPECT_FALSE(run.model.tie_embeddings);
  EXPECT_EQ(run.optimizer.lr, 1.0);
  EXPECT_EQ(run.optimizer.betas, (std::array<double, 2>{0.8, 0.99}));
  EXPECT_EQ(run.memory.device_budget, int64_t{4} << 30);
  EXPECT_EQ(run.memory.host_budget, 1000);
  EXPECT_EQ(run.strategy.recompute, "every:2");
  EXPECT_EQ(run.log.name, "a b");
}

TEST(RunFile, NamesSeveralFoldersOfValuesOnNvme_EachOnce) {
  const auto folders = [](const std::string& path) {
    return nvme_folders(parse_run_text("[memory]\nnvme_path = \"" + path + "\"\n", "run.toml"));
  };
  EXPECT_EQ(folders("auto"), std::vector<std::string>{});
  EXPECT_EQ(folders("/a b/c"), std::vector<std::string>{"/a b/c"});
  EXPECT_EQ(folders("/a:b:c/d"), (std::vector<std::string>{"/a", "b", "c/d"}));
  for (const char* wrong : {":", "/a:", ":/a", "/a::/b", "/a:/b:/a", "/a:/b/../a"})
    EXPECT_THAT(refusal("[memory]\nnvme_path = \"" + std::string(wrong) + "\"\n"),
                HasSubstr("memory.nvme_path names folders with a colon between each two, each once"))
        << wrong;
}

TEST(RunFile, ReadsRates_AndWritesThemAsTheyAreRead) {
  for (const auto& [text, bytes] : {std::pair<std::string, int64_t>{"\"8GB/s\"", 8'000'000'000},
                                    {"\"400MB/s\"", 400'000'000},
                                    {"\"1.5 KiB/s\"", 1536},
                                    {"\"2GB\"", 2'000'000'000},
                                    {"7", 7}}) {
    const RunFile run = parse_run_text("[memory]\nlink = " + text + "\n", "run.toml");
    EXPECT_EQ(run.memory.link, bytes) << text;
    EXPECT_EQ(parse_run_text(to_toml(run), "again"), run) << text;
  }
  EXPECT_THAT(to_toml(parse_run_text("", "run.toml", {{"memory.link=8GB/s"}})), HasSubstr("link = \"8GB/s\"\n"));
  EXPECT_THAT(refusal("[memory]\nlink = \"fast\"\n"), HasSubstr("memory.link (run.toml, line 2): \"fast\""));
  EXPECT_THAT(refusal("[memory]\nlink = true\n"), HasSubstr("expects bytes a second, like \"8GB/s\""));
  EXPECT_THAT(refusal("[memory]\nhost_budget = \"8GB/s\"\n"), HasSubstr("is no number of bytes"));
}

// A run file that begins with the weights of a model of 3 layers.
RunFile with_weights(const std::string& toml, std::vector<std::string> overrides = {}) {
  GivenModel given{.model = parse_run_text("", "theirs",
                                           {{"model.layers=3", "model.width=60", "model.heads=5", "model.ffn=100",
                                             "model.context=40", "model.dropout=0.1", "model.frozen=wte.weight"}})
                                .model,
                   .source = "gpt2"};
  return parse_run_text(toml, "run.toml", overrides, [&](const RunFile& stated) -> std::optional<GivenModel> {
    if (stated.model.weights == "none") return {};
    return given;
  });
}

std::string refusal_with_weights(const std::string& toml) {
  try {
    with_weights(toml);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    return error.message();
  }
  return "";
}

TEST(RunFile, TakesFromTheWeightsWhatItLeavesOutOfTheModel) {
  const RunFile run = with_weights("[model]\nweights = \"gpt2\"\nheads = 5\n", {"model.context=40"});
  EXPECT_EQ(run.model.layers, 3);
  EXPECT_EQ(run.model.width, 60);
  EXPECT_EQ(run.model.head_width, 12);
  EXPECT_EQ(run.model.ffn, 100);
  EXPECT_EQ(run.model.dropout, 0.1);
  EXPECT_EQ(run.model.weights, "gpt2");
  EXPECT_EQ(run.model.frozen, "none") << "says how a run trains, not what the model is";
  EXPECT_EQ(parse_run_text(to_toml(run), "config.toml"), run);
  EXPECT_EQ(with_weights("").model.layers, 12) << "no weights";
}

TEST(RunFile, RefusesAModelThatIsNotTheWeights_NamingEachKey) {
  EXPECT_EQ(refusal_with_weights("[model]\nweights = \"gpt2\"\nheads = 6\nffn = 0\nwidth = 60\n"),
            "the weights of gpt2 are of another model than this run's:\n"
            "  model.heads: 5 in the weights, 6 in this run\n"
            "  model.ffn: 100 in the weights, 240 in this run\n"
            "  fix: leave these keys out of [model], which takes them from the weights");
}

TEST(RunFile, TakesAShorterContextThanTheWeightsHave_AndRefusesALongerOne) {
  EXPECT_EQ(with_weights("[model]\nweights = \"gpt2\"\ncontext = 39\ndropout = 0\n").model.context, 39);
  EXPECT_EQ(refusal_with_weights("[model]\nweights = \"gpt2\"\ncontext = 41\n"),
            "model.context = 41 is longer than the 40 positions that the weights of gpt2 have been trained on\n"
            "  fix: model.context = 40 or less");
}

TEST(RunFile, NamesKeyLineAndNearestName_WhenAKeyIsUnknown) {
  EXPECT_EQ(refusal("[train]\nsteps = 3\nmicrobatch = 2\n"),
            "train.microbatch (run.toml, line 3): no such key\n  fix: did you mean train.micro_batch?");
  EXPECT_EQ(refusal("[train]\nlr = 0.1\n"),
            "train.lr (run.toml, line 2): no such key\n  fix: did you mean optimizer.lr?");
  EXPECT_EQ(refusal("[trian]\nsteps = 3\n"),
            "\"trian\" (run.toml, line 2): no such section of the run file\n  fix: did you mean [train]?");
  EXPECT_THAT(refusal("[trian]\n"), HasSubstr("did you mean [train]?"));
  EXPECT_THAT(refusal("steps = 3\n"), HasSubstr("stands outside of a section"));
}

TEST(RunFile, NamesTypeAndValue_WhenTheTypeIsWrong) {
  EXPECT_EQ(refusal("[train]\nsteps = \"many\"\n"),
            "train.steps (run.toml, line 2): expects an integer, got the text 'many'\n  fix: like 200");
  EXPECT_THAT(refusal("[train]\nsteps = 2.5\n"), HasSubstr("expects an integer, got 2.5"));
  EXPECT_THAT(refusal("[model]\ntie_embeddings = 1\n"), HasSubstr("expects true or false, got 1"));
  EXPECT_THAT(refusal("[optimizer]\nbetas = [0.9]\n"), HasSubstr("expects a pair of numbers, got the list [ 0.9 ]"));
  EXPECT_THAT(refusal("[optimizer]\nbetas = [0.1, \"b\", 2.0, [], [1]]\n"),
              HasSubstr("got the list [ 0.1, 'b', 2.0, [], [ 1 ] ]"));
  EXPECT_THAT(refusal("[optimizer]\nlr = -0.9\n"), HasSubstr("got -0.9\n"));
  EXPECT_THAT(refusal("[model]\nkind = 3\n"), HasSubstr("expects text in quotes, got 3"));
  EXPECT_THAT(refusal("[train.steps]\nx = 1\n"), HasSubstr("got a table"));
  EXPECT_THAT(refusal("[memory]\ndevice_budget = \"4 gibs\"\n"),
              HasSubstr("memory.device_budget (run.toml, line 2): \"4 gibs\""));
}

TEST(RunFile, NamesTheRange_WhenANumberIsImpossible) {
  EXPECT_EQ(refusal("[train]\nbatch = 0\n"),
            "train.batch (run.toml, line 2): must be in [1, 1e+09], got 0\n  fix: like 12");
  EXPECT_THAT(refusal("[model]\ndropout = 1.0\n"), HasSubstr("must be in [0, 1), got 1.0"));
  EXPECT_THAT(refusal("[optimizer]\nlr = 0.0\n"), HasSubstr("must be > 0, got 0.0"));
  EXPECT_THAT(refusal("[optimizer]\nlr = nan\n"), HasSubstr("must be > 0"));
  EXPECT_THAT(refusal("[optimizer]\nfreeze_step = -1\n"), HasSubstr("must be in [0, 1e+12], got -1"));
  EXPECT_THAT(refusal("[optimizer]\nlr = inf\n"), HasSubstr("must be > 0"));
  EXPECT_THAT(refusal("[memory]\ndevice_budget = -1\n"), HasSubstr("must be >= 0, got -1"));
  EXPECT_THAT(refusal("[strategy]\nprecision = \"pf32\"\n"), HasSubstr("did you mean \"fp32\"?"));
  for (const char* wrong : {"every:0", "every:", "every:x", "every:-1", "every:2x"}) {
    EXPECT_THAT(
        refusal("[strategy]\nrecompute = \"" + std::string(wrong) + "\"\n"),
        HasSubstr("strategy.recompute (run.toml, line 2): K of every:K must be an integer in [1, layers], got the "
                  "text"));
  }
  EXPECT_THAT(refusal("[model]\nlayers = 4\n[strategy]\nrecompute = \"every:5\"\n"),
              HasSubstr("must not exceed the layers: 5 > 4\n  fix: strategy.recompute = \"every:4\" or less"));
  EXPECT_THAT(refusal("[model]\nkind = \"t5\"\nlayers = 4\n[strategy]\nrecompute = \"every:9\"\n"),
              HasSubstr("must not exceed the layers: 9 > 2 * 4"));
  EXPECT_EQ(parse_run_text("[model]\nlayers = 4\n[strategy]\nrecompute = \"every:4\"\n", "test").strategy.recompute,
            "every:4");
  EXPECT_THAT(refusal("[strategy]\nprefetch = 65\n"),
              HasSubstr("strategy.prefetch (run.toml, line 2): must be in [0, 64], got 65\n  fix: at most 64, like"));
}

TEST(RunFile, NamesTheRule_WhenKeysContradictEachOther) {
  EXPECT_EQ(refusal("[model]\nheads = 7\n"),
            "model.heads must divide model.width: 768 % 7 = 5\n  fix: model.heads = 6");
  EXPECT_THAT(refusal("[model]\nkv_heads = 5\n"), HasSubstr("model.kv_heads must divide model.heads: 12 % 5 = 2"));
  EXPECT_EQ(
      refusal("[model]\nkind = \"llama\"\nnorm = \"layernorm\"\n"),
      "model.kind = \"llama\" has RMS norms: model.norm must be \"rmsnorm\", got \"layernorm\"\n  fix: model.norm = "
      "\"rmsnorm\", or leave it out");
  EXPECT_EQ(refusal("[optimizer]\nkind = \"sgd\"\nfreeze_step = 80\n"),
            "optimizer.freeze_step = 80 freezes the second moment of AdamW, and optimizer.kind = \"sgd\" has none\n  "
            "fix: optimizer.freeze_step = 0, or optimizer.kind = \"adamw\"");
  EXPECT_THAT(refusal("[model]\nkind = \"moe\"\nexperts = 3\ntop_k = 4\n"),
              HasSubstr("model.top_k must not exceed model.experts: 4 > 3\n  fix: model.top_k = 2"));
  EXPECT_THAT(
      refusal("[model]\nkind = \"moe\"\nlayers = 2\ndense_layers = 2\n"),
      HasSubstr("model.dense_layers must be less than model.layers, of which at least one has experts: 2 and 2\n  "
                "fix: model.dense_layers = 1, or"));
  EXPECT_THAT(
      refusal("[model]\nkind = \"moe\"\nshared_gate = true\n"),
      HasSubstr(
          "model.shared_gate is of shared experts, and model.shared_experts = 0\n  fix: model.shared_experts = 1"));
  for (const char* of_rotary : {"qkv_bias", "qk_norm"}) {
    const std::string key = std::string("model.") + of_rotary;
    EXPECT_EQ(refusal("[model]\n" + std::string(of_rotary) + " = true\n"),
              key + " = true is of llama and moe, but model.kind = \"gpt\"\n  fix: " + key +
                  " = false, or model.kind = \"llama\"");
    EXPECT_THAT(refusal("[model]\nkind = \"bert\"\n" + std::string(of_rotary) + " = true\n"), HasSubstr(key));
  }
  EXPECT_EQ(refusal("[model]\nkind = \"llama\"\nshared_gate = true\nshared_experts = 1\n"),
            "model.shared_gate = true is of moe, but model.kind = \"llama\"\n  fix: model.shared_gate = false, or "
            "model.kind = \"moe\"");
  EXPECT_EQ(refusal("[model]\ndense_layers = 2\n"),
            "model.dense_layers = 2 is of moe, but model.kind = \"gpt\"\n  fix: model.dense_layers = 0, or "
            "model.kind = \"moe\"");
  EXPECT_THAT(refusal("[model]\nkind = \"moe\"\nbias_balancing = 0.1\n[strategy]\nsync = \"server_async\"\n"),
              HasSubstr("never waits for\n  fix: strategy.sync = \"server\", or model.bias_balancing = 0"));
  EXPECT_THAT(refusal("[model]\nkind = \"bert\"\n[data]\npacking = \"documents\"\n"),
              AllOf(HasSubstr("data.packing = \"documents\""), HasSubstr("model.kind = \"bert\""),
                    HasSubstr("fix: data.packing = \"none\", or model.kind = \"llama\"")));
  EXPECT_THAT(refusal("[data]\nkind = \"function\"\npacking = \"documents\"\n"),
              AllOf(HasSubstr("data.kind = \"function\""), HasSubstr("fix: data.packing = \"none\"")));
  EXPECT_THAT(refusal("[model]\nkind = \"t5\"\n", {"model.norm=layernorm"}),
              HasSubstr("model.kind = \"t5\" has RMS norms"));
  EXPECT_THAT(refusal("[model]\nkind = \"llama\"\nhead_width = 7\n"),
              AllOf(HasSubstr("model.head_width must be even, got 7"), HasSubstr("fix: model.head_width = 8")));
  EXPECT_THAT(refusal("[model]\nkind = \"llama\"\nrope_scaling = \"llama3\"\nrope_low_freq_factor = 4\n"),
              HasSubstr("rope_low_freq_factor must be less than model.rope_high_freq_factor: 4"));
  EXPECT_THAT(refusal("[model]\nrope_scaling = \"linear\"\n"),
              AllOf(HasSubstr("model.rope_scaling = \"linear\" is of llama"), HasSubstr("fix:")));
  EXPECT_THAT(refusal("[optimizer]\nlr_min = 1.0\n"), HasSubstr("lr_min must not exceed"));
  EXPECT_THAT(refusal("[optimizer]\nwarmup_steps = 201\n"), HasSubstr("201 > 200"));
  EXPECT_THAT(refusal("[mesh]\npp = 15\n"), HasSubstr("15 > layers 12 + 2"));
  EXPECT_EQ(refusal("[model]\nkind = \"t5\"\n[mesh]\npp = 26\n"), "");
  EXPECT_THAT(refusal("[model]\nkind = \"t5\"\n[mesh]\npp = 27\n"), HasSubstr("27 > 2 * layers 12 + 2"));
}

TEST(RunFile, TakesTheNormOfTheKind_UnlessItIsStated) {
  const auto norm = [](const std::string& keys) { return parse_run_text("[model]\n" + keys, "run.toml").model.norm; };
  EXPECT_EQ(norm("kind = \"gpt\"\n"), "layernorm");
  EXPECT_EQ(norm("kind = \"gpt\"\nnorm = \"rmsnorm\"\n"), "rmsnorm");
  for (const std::string kind : {"llama", "t5"}) {
    EXPECT_EQ(norm("kind = \"" + kind + "\"\n"), "rmsnorm");
    EXPECT_EQ(norm("kind = \"" + kind + "\"\nnorm = \"rmsnorm\"\n"), "rmsnorm");
  }
}

TEST(RunFile, NamesTheLine_WhenTheFileIsNoToml) {
  EXPECT_THAT(refusal("[train]\nsteps = = 3\n"),
              AllOf(HasSubstr("run.toml, line 2: is no TOML"), HasSubstr("fix: key = value, such as steps = 200")));
  EXPECT_THAT(refusal("[train]\nsteps = 1\nsteps = 2\n"), HasSubstr("line 3"));
}

TEST(RunFile, TakesOverrides) {
  const std::vector<std::string> overrides = {"train.steps=7",
                                              "strategy.recompute=full",
                                              "log.name=\"x=y\"",
                                              "memory.device_budget=2GiB",
                                              "optimizer.betas=[0, 0.5]",
                                              "optimizer.lr=1e-3"};
  const RunFile run = parse_run_text("[train]\nsteps = 3\n", "run.toml", overrides);
  EXPECT_EQ(run.train.steps, 7);
  EXPECT_EQ(run.strategy.recompute, "full");
  EXPECT_EQ(run.log.name, "x=y");
  EXPECT_EQ(run.memory.device_budget, int64_t{2} << 30);
  EXPECT_EQ(run.optimizer.betas[1], 0.5);
  EXPECT_EQ(run.optimizer.lr, 1e-3);
  EXPECT_EQ(refusal("", {"train.step=7"}),
            "train.step (override \"train.step=7\"): no such key\n  fix: did you mean train.steps?");
  EXPECT_THAT(refusal("", {"train.steps=many"}), HasSubstr("override \"train.steps=many\""));
  EXPECT_THAT(refusal("", {"steps"}), HasSubstr("must be section.key=value"));
  EXPECT_THAT(refusal("", {"train.steps=1\nx=2"}), HasSubstr("line break"));
}

TEST(RunFile, ComesBackFromItsOwnText) {
  RunFile run = parse_run_text("", "run.toml");
  EXPECT_EQ(parse_run_text(to_toml(run), "again.toml"), run);
  run.model.dropout = 0.1;
  run.optimizer.lr = 1.0 / 3;
  run.memory.device_budget = (int64_t{3} << 20) + 1;
  run.log.name = "quote \" backslash \\ tab \t umlaut ä";
  EXPECT_EQ(parse_run_text(to_toml(run), "again.toml"), run);
}

TEST(RunFile, BoundsWhatAModelMayAskFor) {
  EXPECT_THAT(refusal("[model]\nlayers = 1000000000"), HasSubstr("in [1, 10000], got 1000000000"));
  EXPECT_THAT(refusal("[model]\ncontext = 1000000000000000"), HasSubstr("in [1, 1e+08], got 1000000000000000"));
  EXPECT_THAT(refusal("[train]\nmicro_batch = 1000000000\n[model]\ncontext = 100000000"),
              testing::AllOf(HasSubstr("too many to count"), HasSubstr("context 100000000"), HasSubstr("fix:")));
  EXPECT_THAT(refusal("[model]\nlayers = 10000\nwidth = 1048576\nheads = 1\nffn = 16777216"),
              HasSubstr("too many to count"));
  EXPECT_EQ(refusal("[model]\nlayers = 126\nwidth = 16384\nheads = 128\nffn = 53248\ncontext = 131072"), "");
}

TEST(RunFile, ComparesWholeNumbersAsWhole) {
  EXPECT_EQ(refusal("[train]\nseed = 1000000000000000\n"), "");
  for (const char* seed : {"1000000000000001", "9223372036854775807", "-1"})
    EXPECT_THAT(refusal("[train]\nseed = " + std::string(seed)), HasSubstr("must be >= 0, got " + std::string(seed)));
  EXPECT_THAT(refusal("[memory]\ndevice_budget = \"9000000000GB\"\n"), HasSubstr("must be >= 0"));
  EXPECT_THAT(refusal("[checkpoint]\nkeep = 4294967296\n"), HasSubstr("in [1, 1e+06], got 4294967296"));
}

TEST(RunFile, ARefusalObeysNoNameOfTheFile) {
  EXPECT_THAT(refusal("[train]\n\"\\u001b[2J\\nfix: evil\" = 1\n"),
              HasSubstr("train.\\x1b[2J\\x0afix: evil (run.toml, line 2): no such key"));
  EXPECT_THAT(refusal("[\"\\u001b[2J\"]\nx = 1\n"), HasSubstr("\"\\x1b[2J\" (run.toml, line 2): no such section"));
  const std::string bytes = refusal("[memory]\ndevice_budget = \"\\u001b\\nfix: evil\"\n");
  EXPECT_THAT(bytes, HasSubstr("\"\\x1b\\x0afix: evil\" is no number of bytes"));
}

TEST(RunFile, KeepsTheRunsFolderInsideThatOfAllRuns) {
  for (const std::string name : {"../..", "a/../../b", "/tmp/x", ".", "./", "a/.."}) {
    EXPECT_THAT(
        refusal("[log]\nname = \"" + name + "\""),
        testing::AllOf(HasSubstr("log.name must name a folder inside log.dir, got \"" + name), HasSubstr("fix:")))
        << name;
  }
  for (const std::string name : {"a", "a/b", "a..b", "..a"}) EXPECT_EQ(refusal("[log]\nname = \"" + name + "\""), "");
}

TEST(RunFile, IsARun_WhenTheFileIsEmpty) {
  const auto path = std::filesystem::temp_directory_path() / ("empty-" + std::to_string(getpid()) + ".toml");
  std::ofstream(path).close();
  EXPECT_EQ(parse_run_file(path.string()), parse_run_text("", "run.toml"));
  std::filesystem::remove(path);
}

// The launcher would take what is in it, and ranks an empty run file.
TEST(RunFile, IsNoPipe) {
  const auto path = std::filesystem::temp_directory_path() / ("herd_run_pipe_" + std::to_string(getpid()));
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  try {
    parse_run_file(path.string());
    ADD_FAILURE() << "a pipe is read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_THAT(error.message(), testing::AllOf(testing::HasSubstr("is a pipe"), testing::HasSubstr("fix: a file")));
  }
  std::filesystem::remove(path);
}

TEST(RunFile, NamesTheFile_WhenItCannotBeRead) {
  try {
    parse_run_file("/nowhere/run.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kStorage);
    EXPECT_THAT(error.message(), HasSubstr("/nowhere/run.toml"));
  }
}

// Members that a struct of plain members has: as many as its braces take.
struct Anything {
  template <typename T>
  operator T() const;  // NOLINT: never defined, only for the count
};
template <typename T, typename... Members>
constexpr int members_of() {
  if constexpr (requires { T{std::declval<Members>()..., std::declval<Anything>()}; })
    return members_of<T, Members..., Anything>();
  else
    return sizeof...(Members);
}

TEST(RunKeys, DeclareEveryMember_SoThatNoneIsLostInTheText) {
  constexpr int kMembers =
      members_of<RunFile::Model>() + members_of<RunFile::Data>() + members_of<RunFile::Train>() +
      members_of<RunFile::Optimizer>() + members_of<RunFile::Mesh>() + members_of<RunFile::Strategy>() +
      members_of<RunFile::Device>() + members_of<RunFile::Memory>() + members_of<RunFile::Comm>() +
      members_of<RunFile::Checkpoint>() + members_of<RunFile::Health>() + members_of<RunFile::Log>();
  static_assert(members_of<RunFile>() == 13, "count the new section's members above");  // 12, and the chain's table
  EXPECT_EQ(run_keys().size(), static_cast<size_t>(kMembers));
}

TEST(RunKeys, StandForAMemberEach_InTheTextToo) {
  const RunFile before = parse_run_text("", "run.toml");
  std::vector<RunFile> changed;
  std::vector<std::string> sections;
  for (const Key& key : run_keys()) {
    if (sections.empty() || key.section != sections.back()) {
      EXPECT_EQ(std::count(sections.begin(), sections.end(), key.section), 0) << key.section << " stands in two places";
      sections.emplace_back(key.section);
    }
    EXPECT_FALSE(key.doc.empty()) << key.full_name();
    RunFile after = before;
    set_other_value(key, after);
    EXPECT_NE(after, before) << key.full_name();
    EXPECT_EQ(std::count(changed.begin(), changed.end(), after), 0) << key.full_name() << " is another key's member";
    EXPECT_NE(to_toml(after), to_toml(before)) << key.full_name();
    changed.push_back(after);
  }
}

TEST(RunKeys, WriteTheGuide_AndSayWhatThisVersionRefuses) {
  const auto refused = strategies::refused_values();
  EXPECT_EQ(refused.at("model.kind"), "t5");
  EXPECT_EQ(refused.at("strategy.context"), "hybrid");
  EXPECT_FALSE(refused.contains("mesh.tp"));
  testing_support::expect_golden("docs/guide/run_file.md", run_file_guide(refused));
}

TEST(RunKeys, AreAllInTheHelp_WithTheirDefaults) {
  const std::string help = run_keys_help();
  for (const Key& key : run_keys()) {
    EXPECT_NE(help.find("\n[" + std::string(key.section) + "]\n"), std::string::npos) << key.section;
    EXPECT_NE(help.find("  " + std::string(key.name) + " = " + value_toml(key, RunFile())), std::string::npos)
        << key.full_name();
    EXPECT_NE(help.find(key.doc), std::string::npos) << key.full_name();
  }
}

}  // namespace
}  // namespace herd::spec
