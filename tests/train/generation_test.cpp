// Texts continued by Programs: the tokens of the whole forward pass, of the finer chain and of ranks that share it; the
// memory that the programs predict.
#include "herd/train/generation.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <set>

#include "herd/base/error.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/comm/inproc_world.h"
#include "herd/models/decoder.h"
#include "herd/nn/run_block.h"
#include "herd/program/build.h"
#include "herd/program/generation_passes.h"
#include "herd/program/memory_bound.h"
#include "herd/runtime/parameter_update.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/generation_table.h"
#include "herd/spec/table_builder_internal.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/train/generate_text.h"
#include "herd/train/run_optimizer.h"
#include "tests/support/expect_error.h"

namespace herd::train {
namespace {

using Tokens = std::vector<int64_t>;

TEST(PromptIds, AreWholeNumbersWithCommasBetweenThem) {
  EXPECT_EQ(parse_prompt_ids("464,2068"), (Tokens{464, 2068}));
  EXPECT_EQ(parse_prompt_ids("0"), Tokens{0});
  const std::string fix = "fix: whole numbers with commas between them, --ids 464,2068";
  EXPECT_ERROR(parse_prompt_ids("1,,2"), Code::kBadConfig, "--ids \"1,,2\": id 2 is missing", fix);
  EXPECT_ERROR(parse_prompt_ids(""), Code::kBadConfig, "--ids \"\": id 1 is missing", fix);
  EXPECT_ERROR(parse_prompt_ids("1,2,"), Code::kBadConfig, "id 3 is missing", fix);
  for (const char* wrong : {"a", "1.5", "-1", " 1", "1 2", "9223372036854775808"})
    EXPECT_ERROR(parse_prompt_ids(wrong), Code::kBadConfig, "id 1 is no token id: \"" + std::string(wrong) + "\"", fix);
}

constexpr int64_t kVocabulary = 12, kContext = 8;

spec::RunFile run_of(const std::string& kind, int64_t context = kContext, bool tied = true) {
  spec::RunFile run;
  run.model = {.kind = kind,
               .layers = 2,
               .width = 32,
               .heads = 4,
               .context = context,
               .vocab = kVocabulary,
               .tie_embeddings = tied};
  if (kind == "moe") run.model.experts = 3;
  if (kind != "gpt") run.model.norm = "rmsnorm", run.model.kv_heads = 2, run.model.rope_theta = 20;
  return strategies::generation_run(run);
}

// A model with the programs of a prompt, on one rank of `comm`.
class Generator {
 public:
  Generator(const spec::RunFile& run, Communicator& comm, int64_t tokens) : run_(run) {
    const spec::Layout layout = strategies::trainable_layout(run, comm.size());
    programs_ = strategies::compile_generation(run, layout, tokens).at(static_cast<size_t>(comm.rank()));
    const spec::ModelTable table = spec::program_table(run, 1);
    make(models::make_model(run.model, table, {layout.mesh.index(layout.tensor_axis, comm.rank())}), comm);
  }
  // The parts of layers that ranks would share, on one rank.
  static Generator in_parts(const spec::RunFile& run, Communicator& comm) { return Generator(run, comm); }

  // Larger than any initialisation, so that positions matter.
  Generator& perturb() {
    for (const auto& group : model_.groups)
      group->weights().add_(at::arange(group->elements(), at::kFloat).mul_(0.7f).sin_(), 0.2);
    return *this;
  }
  Tokens operator()(const Tokens& prompt, const models::GenerateOptions& options = {}) {
    return generation_->run(prompt, options);
  }
  const models::Model& model() const { return model_; }
  const strategies::GenerationPrograms& programs() const { return programs_; }
  runtime::FlatParameters& parameters() { return *parameters_; }

 private:
  Generator(const spec::RunFile& run, Communicator& comm) : run_(run) {
    const spec::Layout layout = strategies::trainable_layout(run, 1);
    const spec::ModelTable whole = spec::decoder_table(run, 1, spec::Kernels::kCpu, spec::Join::kBetweenRanks);
    const auto pass = [&](int64_t tokens, program::Caches caches) {
      spec::RunFile shorter = run;
      shorter.model.context = tokens;
      const spec::ModelTable table = spec::generation_table(
          whole, spec::decoder_table(shorter, 1, spec::Kernels::kCpu, spec::Join::kBetweenRanks));
      const program::Program out = generation_pass(program::plain_step(run, table, layout, 0), table, caches);
      EXPECT_EQ(to_string(verify({out}, generation_expected(strategies::expectation_of(table, layout), table, caches)),
                          {out}),
                "");
      return out;
    };
    programs_ = {pass(run.model.context, program::Caches::kBegun), pass(1, program::Caches::kContinued)};
    make(models::make_model(run.model, whole, models::RankPlace{}), comm);
  }
  void make(models::Model model, Communicator& comm) {
    model_ = std::move(model);
    groups_ = std::make_unique<runtime::AxisGroups>(comm, programs_.token);
    parameters_ = std::make_unique<runtime::FlatParameters>(model_.groups, programs_.token, comm,
                                                            std::vector<at::ScalarType>{}, 1);
    generation_ = std::make_unique<Generation>(programs_, model_, *parameters_, *groups_);
  }

  spec::RunFile run_;
  strategies::GenerationPrograms programs_;
  models::Model model_;
  std::unique_ptr<runtime::AxisGroups> groups_;
  std::unique_ptr<runtime::FlatParameters> parameters_;
  std::unique_ptr<Generation> generation_;
};

// The largest logit after `tokens`, by the whole forward pass without a cache.
int64_t greedy_without_cache(const models::Model& model, const Tokens& tokens) {
  nn::Tuple x = {at::tensor(tokens, at::kLong).unsqueeze(0)};
  for (const auto& block : model.blocks) x = nn::run_without_graph(*block, x, {});
  return x[0][0][-1].argmax().item<int64_t>();
}

TEST(Generation, GivesWhatTheWholeForwardPassGives_UntilTheContextIsFullAndBeyond) {
  Communicator comm = world_of_one();
  std::set<int64_t> tokens;
  for (const char* kind : {"gpt", "llama", "moe"}) {
    Generator generate(run_of(kind), comm, 4);
    generate.perturb();
    Tokens text = {3, 1, 4};
    const Tokens got = generate(text, {.max_tokens = 12, .temperature = 0});
    size_t begin = 0;
    for (int64_t token : got) {
      if (text.size() - begin > kContext) begin = text.size() - kContext / 2;
      EXPECT_EQ(token, greedy_without_cache(generate.model(), {text.begin() + static_cast<int64_t>(begin), text.end()}))
          << kind;
      text.push_back(token);
    }
    EXPECT_EQ(got.size(), 12u);
    tokens.insert(got.begin(), got.end());
  }
  EXPECT_GT(tokens.size(), 3u);
}

TEST(Generation, RefusesLogitsThatAreNotFinite) {
  Communicator comm = world_of_one();
  Generator generate(run_of("gpt"), comm, 4);
  for (const auto& group : generate.model().groups) group->weights().fill_(3e38f);  // finite, but their sums are not
  EXPECT_ERROR(generate({3, 1, 4}, {.max_tokens = 2}), Code::kBadConfig, "the logit of token 0 for new token 0",
               "no token can be drawn", "fix: ");
}

struct Golden {
  std::string kind;
  int64_t context;
  bool tied;
  double temperature;
  Tokens tokens;
};

// What a loop over the blocks by hand gave before passes were Programs, after 3 1 4 with seed 7.
const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = {
      {"gpt", 8, true, 0, {2, 5, 5, 5, 3, 5, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}},
      {"gpt", 8, true, 0.7, {8, 10, 3, 5, 5, 3, 1, 10, 3, 5, 0, 0, 7, 5, 5, 5, 10, 5, 3, 1}},
      {"gpt", 8, false, 0, {10, 8, 10, 1, 1, 1, 8, 10, 1, 1, 1, 8, 10, 1, 1, 1, 8, 10, 1, 1}},
      {"gpt", 8, false, 0.7, {11, 3, 10, 8, 10, 1, 4, 0, 10, 8, 3, 6, 7, 10, 3, 10, 6, 1, 8, 6}},
      {"gpt", 7, true, 0, {2, 5, 5, 5, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}},
      {"gpt", 7, true, 0.7, {8, 10, 3, 5, 5, 10, 7, 3, 3, 5, 9, 9, 0, 5, 3, 3, 1, 5, 3, 10}},
      {"gpt", 7, false, 0, {10, 8, 10, 1, 1, 8, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1}},
      {"gpt", 7, false, 0.7, {11, 3, 10, 8, 10, 1, 5, 1, 10, 10, 5, 3, 3, 1, 3, 1, 6, 4, 0, 8}},
      {"llama", 8, true, 0, {6, 6, 6, 6, 6, 6, 1, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}},
      {"llama", 8, true, 0.7, {3, 10, 10, 3, 10, 3, 6, 1, 8, 3, 7, 10, 3, 3, 10, 10, 1, 1, 10, 5}},
      {"llama", 8, false, 0, {3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11}},
      {"llama", 8, false, 0.7, {6, 7, 6, 0, 1, 9, 6, 5, 11, 5, 0, 11, 10, 11, 10, 11, 1, 9, 8, 11}},
      {"llama", 7, true, 0, {6, 6, 6, 6, 6, 1, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}},
      {"llama", 7, true, 0.7, {3, 10, 10, 3, 10, 8, 0, 7, 7, 3, 7, 10, 3, 3, 10, 10, 1, 1, 10, 5}},
      {"llama", 7, false, 0, {3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11}},
      {"llama", 7, false, 0.7, {6, 7, 6, 0, 1, 9, 6, 5, 11, 5, 6, 1, 0, 6, 5, 11, 5, 9, 8, 9}},
  };
  return all;
}

TEST(Generation, GivesTheTokensOfALoopOverTheBlocks) {
  Communicator comm = world_of_one();
  for (const Golden& golden : goldens()) {
    Generator generate(run_of(golden.kind, golden.context, golden.tied), comm, 4);
    EXPECT_EQ(generate.perturb()({3, 1, 4}, {.max_tokens = 20, .temperature = golden.temperature, .seed = 7}),
              golden.tokens)
        << golden.kind << " " << golden.context << " " << golden.tied << " " << golden.temperature;
  }
}

// Parts of layers give other bits than whole ones, in the last places: the likeliest token is the same.
TEST(Generation, GivesTheSameTokensFromPartsOfLayers) {
  Communicator comm = world_of_one();
  for (const char* kind : {"gpt", "llama"}) {
    for (const int64_t context : {8, 7}) {
      const spec::RunFile run = run_of(kind, context, false);
      Generator whole(run, comm, context), parts = Generator::in_parts(run, comm);
      std::map<std::string, at::Tensor> weights;
      for (const auto& group : whole.model().groups) {
        group->weights().add_(at::arange(group->elements(), at::kFloat).mul_(0.7f).sin_(), 0.2);
        for (const nn::Parameter& p : group->parameters()) weights[p.spec().name] = p.value().detach();
      }
      for (const auto& group : parts.model().groups)
        for (const nn::Parameter& p : group->parameters()) p.value().detach().copy_(weights.at(p.spec().name));
      for (const Tokens& prompt : {Tokens{3, 1, 4}, Tokens{2}, Tokens{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}) {
        const models::GenerateOptions options{.max_tokens = 20, .temperature = 0};
        EXPECT_EQ(whole(prompt, options), parts(prompt, options)) << kind << " " << context;
      }
    }
  }
}

TEST(Generation, GivesTheSameTokensFromRanksThatShareLayers) {
  for (const char* kind : {"gpt", "llama"}) {
    for (const int ranks : {2, 4}) {  // of the Llama, 4 hold copies of 2 key heads
      spec::RunFile run = run_of(kind, 8, false);
      run.model.vocab = 29;
      const auto louder = [](Generator& generate) {
        for (const auto& group : generate.model().groups) group->weights().mul_(4);
      };
      const models::GenerateOptions options{.max_tokens = 20, .temperature = 0};
      const Tokens prompt = {3, 1, 4};
      Communicator comm = world_of_one();
      Generator alone(run, comm, 4);
      louder(alone);
      const Tokens expected = alone(prompt, options);
      EXPECT_GT(std::set<int64_t>(expected.begin(), expected.end()).size(), 1u);
      run.mesh.tp = ranks;
      run_inproc(ranks, [&](Communicator& world) {
        Generator shared(run, world, 4);
        louder(shared);
        EXPECT_EQ(shared(prompt, options), expected) << kind << " on " << ranks << " ranks";
      });
    }
  }
}

TEST(Generation, SaysWhatItWasTaught) {
  spec::RunFile run = run_of("gpt");
  run.train.batch = run.train.micro_batch = 4;
  run.optimizer.lr = 1e-3;
  Communicator comm = world_of_one();
  const spec::Layout layout = strategies::trainable_layout(run, 1);
  const program::Program step = strategies::compile_step(run, spec::program_table(run, 4), layout, 0);
  Generator generate(strategies::generation_run(run), comm, kContext);
  std::vector<at::Tensor> taught;
  {
    const models::Model model = models::make_model(run.model);
    const runtime::AxisGroups groups(comm, step);
    runtime::FlatParameters parameters(model.groups, step, comm, state_types(run.optimizer), 1);
    const std::unique_ptr<optim::Optimizer> optimizer = make_optimizer(run.optimizer);
    const optim::LearningRate rate{.peak = run.optimizer.lr, .schedule = optim::RateSchedule::kConstant};
    runtime::ModelBindings bindings(model.blocks, parameters, groups,
                                    runtime::parameter_update(parameters, *optimizer, rate), {.clip = 1});
    runtime::Executor executor(step, bindings.table());
    const at::Tensor tokens = at::arange(9 * 4, at::kLong).remainder(kVocabulary).view({4, 9});  // each token plus one
    const runtime::Batch batch{tokens.slice(1, 0, 8).contiguous(), tokens.slice(1, 1, 9).contiguous()};
    for (int s = 0; s < 150; ++s) {
      bindings.begin_step({.micro_batches = {batch}, .weight = 1.0 / 32});
      executor.run(s);
    }
    executor.drain();
    for (int g = 0; g < parameters.num_groups(); ++g)
      generate.parameters().own_weights(g).copy_(parameters.own_weights(g));
  }
  EXPECT_EQ(generate({5}, {.max_tokens = 5, .temperature = 0}), (Tokens{6, 7, 8, 9, 10}));
}

TEST(Generation, SeedDecidesAndTopKLimitsAndACallbackStops) {
  Communicator comm = world_of_one();
  Generator generate(run_of("gpt"), comm, 4);
  const Tokens prompt = {2};
  const models::GenerateOptions options{.max_tokens = 40, .temperature = 5, .seed = 7};
  EXPECT_EQ(generate(prompt, options), generate(prompt, options));
  models::GenerateOptions other = options;
  other.seed = 8;
  EXPECT_NE(generate(prompt, options), generate(prompt, other));
  models::GenerateOptions one = options;
  one.top_k = 1;
  EXPECT_EQ(generate(prompt, one), generate(prompt, {.max_tokens = 40, .temperature = 0}));
  models::GenerateOptions stopped = options;
  stopped.on_token = [count = 0](int64_t) mutable { return ++count < 3; };
  EXPECT_EQ(generate(prompt, stopped).size(), 3u);
  const Tokens sampled = generate(prompt, options);
  EXPECT_GE(std::set<int64_t>(sampled.begin(), sampled.end()).size(), 5u);
}

TEST(Generation, RefusesAnEmptyPromptAndNegativeNumbers) {
  Communicator comm = world_of_one();
  Generator generate(run_of("gpt"), comm, 4);
  EXPECT_THROW(generate({}), Error);
  EXPECT_THROW(generate({2}, {.temperature = -1}), Error);
}

TEST(MostTokensOfAPass, IsThePromptOrTheHalfThatIsReadAnew) {
  EXPECT_EQ(max_tokens_per_pass(3, 6, 8), 3);  // the sixth is not read
  EXPECT_EQ(max_tokens_per_pass(3, 7, 8), 4);
  EXPECT_EQ(max_tokens_per_pass(3, 6, 7), 4);
  EXPECT_EQ(max_tokens_per_pass(100, 0, 8), 8);
  EXPECT_EQ(max_tokens_per_pass(6, 100, 8), 6);
}

// Of programs for `tokens` tokens, whose prompt and token passes run.
void expect_predicted(const spec::RunFile& run, int64_t tokens) {
  DeviceMemory::install();
  Communicator comm = world_of_one();
  const int64_t before = DeviceMemory::live_bytes();
  DeviceMemory::reset_peak();
  Generator generate(run, comm, tokens);
  generate(Tokens(static_cast<size_t>(tokens), 3), {.max_tokens = 3});
  const auto measured = static_cast<double>(DeviceMemory::peak_bytes() - before);
  const program::Peak peak = in_order_peak(generate.programs().prompt, program::Tier::kDevice);
  const auto predicted = static_cast<double>(peak.bytes);
  EXPECT_NEAR(measured, predicted, 0.03 * predicted) << run.model.kind << ", " << tokens << " tokens\n"
                                                     << memory_table(peak);
  // What is not weights is predicted as well: those alone would not hide an error.
  const auto weights = static_cast<double>(peak.by_kind.at(program::ValueKind::kWeight));
  EXPECT_NEAR(measured - weights, predicted - weights, 0.1 * (predicted - weights)) << run.model.kind << ", " << tokens;
}

TEST(Generation, TakesTheMemoryThatTheProgramsPredict) {
  for (const char* kind : {"gpt", "llama", "moe"}) {
    for (const bool tied : {true, false}) {
      spec::RunFile run = run_of(kind, 96, tied);
      run.model.layers = 3, run.model.width = 64, run.model.vocab = 500;
      if (run.model.kind != "gpt") run.model.ffn = 176;
      for (const int64_t tokens : {90, 31, 1}) expect_predicted(run, tokens);
    }
  }
}

}  // namespace
}  // namespace herd::train
