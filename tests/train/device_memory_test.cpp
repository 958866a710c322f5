// Steps on the device "later" (tests/device): each holds no more than the bound with which a run is accepted, and
// hardly less. Attention is the CPU's there, so sizes are such that it is not where a step holds most.
#include <gtest/gtest.h>

#include "measured_ranks.h"
#include "tests/device/later_device.h"

namespace herd::train {
namespace {

struct Case {
  std::string name;
  std::vector<std::string> keys;
  int ranks = 1;
};
std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

class DeviceStep : public testing::TestWithParam<Case> {};

TEST_P(DeviceStep, HoldsWhatIsPredicted) {
  std::vector<std::string> keys = {"device.kind=extension", "model.width=64", "model.heads=2",      "model.context=64",
                                   "model.vocab=200",       "train.batch=4",  "train.micro_batch=2"};
  keys.insert(keys.end(), GetParam().keys.begin(), GetParam().keys.end());
  const spec::RunFile run = spec::parse_run_text(spec::to_toml(tiny_run()), "test", keys);
  for (const MeasuredRank& measured :
       measured_ranks(run, GetParam().ranks, family_source(), [] { later::install(/*seed=*/5); })) {
    EXPECT_LE(measured.peak, measured.bound);
    EXPECT_GE(measured.peak, measured.bound - measured.bound * 3 / 100 - 8192);
  }
}

const std::vector<Case> kGpt = {
    {"gpt", {}},
    {"gpt_without_dropout", {"model.dropout=0"}},
    {"gpt_bf16", {"strategy.precision=bf16"}},
    {"gpt_fp16", {"strategy.precision=fp16", "model.dropout=0"}},
    {"gpt_gradients_fp32", {"strategy.precision=bf16", "strategy.gradient_precision=fp32", "model.dropout=0"}},
    {"gpt_many_words", {"model.vocab=4000", "model.dropout=0"}},
    {"gpt_tied", {"model.vocab=2000", "model.tie_embeddings=true", "strategy.precision=bf16"}},
    {"gpt_again", {"strategy.recompute=full", "strategy.precision=bf16", "model.dropout=0"}},
    {"gpt_packed", {"data.packing=documents"}},
    {"gpt_packed_without_dropout", {"data.packing=documents", "model.dropout=0"}},
    {"bert", {"model.kind=bert"}},
    {"bert_bf16", {"model.kind=bert", "strategy.precision=bf16", "model.dropout=0"}},
    {"bert_again", {"model.kind=bert", "strategy.recompute=full", "data.masked_fraction=0.5"}},
    {"gpt_read_on_host", {"strategy.offload=window", "strategy.direct_host=*"}},
    {"gpt_ring", {"mesh.cp=2", "strategy.context=ring", "model.ffn=16", "model.vocab=20"}, 2}};

std::vector<Case> llama() {
  const std::vector<std::string> model = {"model.kind=llama", "model.norm=rmsnorm", "model.dropout=0",
                                          "model.kv_heads=1", "model.ffn=192",      "strategy.precision=bf16"};
  std::vector<Case> cases = {
      {"llama", {}},
      {"llama_fp32", {"strategy.precision=fp32"}},
      {"llama_narrow_feed", {"model.ffn=32"}},
      {"llama_wide_feed", {"model.ffn=640"}},
      {"llama_many_words", {"model.vocab=4000"}},
      {"llama_many_words_fp32", {"model.vocab=4000", "strategy.gradient_precision=fp32"}},
      {"llama_again", {"strategy.recompute=full"}},
      {"llama_selective", {"strategy.recompute=selective"}},
      {"llama_states_on_host", {"strategy.offload=states"}},
      {"llama_window", {"strategy.offload=window"}},
      {"llama_read_on_host", {"strategy.offload=window", "strategy.direct_host=*"}},
      {"llama_ends_read_on_host", {"strategy.offload=window", "strategy.direct_host=embedding head"}},
      {"llama_files_read_on_host", {"strategy.offload=window", "strategy.direct_host=*", "strategy.file_layers=2"}},
      {"llama_zero2_read_on_host", {"strategy.offload=window", "strategy.direct_host=*", "strategy.zero=2"}, 2},
      {"llama_packed", {"data.packing=documents"}},
      {"llama_packed_fp32", {"data.packing=documents", "strategy.precision=fp32"}},
      {"llama_packed_again", {"data.packing=documents", "strategy.recompute=full"}},
      {"llama_packed_tp2", {"data.packing=documents", "mesh.tp=2", "model.kv_heads=2"}, 2},
      {"llama_packed_ring", {"data.packing=documents", "mesh.cp=2", "strategy.context=ring"}, 2},
      {"llama_zero3", {"strategy.zero=3"}, 2},
      {"llama_int8", {"strategy.zero=3", "strategy.gather_codec=int8", "strategy.compression=int8"}, 2},
      {"llama_topk", {"strategy.gradient_precision=fp32", "strategy.compression=topk"}, 2},
      {"llama_served", {"strategy.precision=fp32", "strategy.sync=server", "optimizer.clip=0"}, 2},
      {"llama_int4", {"strategy.gradient_precision=fp32", "strategy.compression=int4"}, 2}};
  for (Case& one : cases) one.keys.insert(one.keys.begin(), model.begin(), model.end());
  return cases;
}

const std::vector<std::string> kExperts = {"model.kind=moe",    "model.norm=rmsnorm",    "model.dropout=0",
                                           "model.experts=8",   "model.top_k=2",         "model.expert_ffn=96",
                                           "model.z_loss=0.01", "model.shared_experts=1"};

std::vector<Case> mixtures() {
  std::vector<Case> cases = {{"experts", {}},
                             {"experts_bf16", {"strategy.precision=bf16"}},
                             {"experts_again", {"strategy.recompute=full", "strategy.precision=bf16"}},
                             // Every token chooses all experts, so each rank gets as many rows as it can.
                             {"experts_of_ranks", {"model.experts=2", "mesh.ep=2"}, 2},
                             {"experts_of_ranks_bf16", {"model.experts=2", "mesh.ep=2", "strategy.precision=bf16"}, 2},
                             // What is exchanged is most of what a step holds.
                             {"small_experts_of_ranks",
                              {"model.experts=8", "model.top_k=8", "model.expert_ffn=2", "model.shared_experts=0",
                               "model.vocab=20", "mesh.ep=2"},
                              2}};
  for (Case& one : cases) one.keys.insert(one.keys.begin(), kExperts.begin(), kExperts.end());
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Mixture, DeviceStep, testing::ValuesIn(mixtures()),
                         [](const auto& one) { return one.param.name; });
INSTANTIATE_TEST_SUITE_P(Gpt, DeviceStep, testing::ValuesIn(kGpt), [](const auto& one) { return one.param.name; });
INSTANTIATE_TEST_SUITE_P(Llama, DeviceStep, testing::ValuesIn(llama()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace herd::train
