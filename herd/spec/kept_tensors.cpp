#include "herd/spec/kept_tensors.h"

#include "herd/base/error.h"
#include "herd/spec/table_builder_internal.h"

namespace herd::spec {
namespace {

// A term of Korthikanti et al.: bytes of an element of sbh, or of as^2b. Tensor-parallel ranks share what is cut.
struct Term {
  LayerTensor tensor;
  double sbh, scores;
  bool is_cut;
  std::string_view equation;
};
constexpr Term kTerms[] = {
    {LayerTensor::kFirstNormInput, 2, 0, false, "2sbh"},   {LayerTensor::kFirstNormOutput, 2, 0, false, "2sbh"},
    {LayerTensor::kQueriesAndKeys, 4, 0, true, "4sbh"},    {LayerTensor::kValues, 2, 0, true, "2sbh"},
    {LayerTensor::kSoftmax, 0, 2, true, "2as^2b"},         {LayerTensor::kSoftmaxMask, 0, 1, true, "as^2b"},
    {LayerTensor::kSoftmaxDropped, 0, 2, true, "2as^2b"},  {LayerTensor::kAttentionOutput, 2, 0, true, "2sbh"},
    {LayerTensor::kAttentionMask, 1, 0, false, "sbh"},     {LayerTensor::kSecondNormInput, 2, 0, false, "2sbh"},
    {LayerTensor::kSecondNormOutput, 2, 0, false, "2sbh"}, {LayerTensor::kUp, 8, 0, true, "8sbh"},
    {LayerTensor::kActivated, 8, 0, true, "8sbh"},         {LayerTensor::kFeedMask, 1, 0, false, "sbh"}};

}  // namespace

std::string_view tensor_name(LayerTensor tensor) {
  switch (tensor) {
    case LayerTensor::kFirstNormInput:
      return "input of norm 1";
    case LayerTensor::kFirstNormOutput:
      return "its output, input of q, k, v";
    case LayerTensor::kQueriesAndKeys:
      return "q and k";
    case LayerTensor::kValues:
      return "v";
    case LayerTensor::kFp32Copies:
      return "fp32 copies of fp16";
    case LayerTensor::kScoreSums:
      return "log-sum of each row of scores";
    case LayerTensor::kSoftmax:
      return "softmax of the scores";
    case LayerTensor::kSoftmaxMask:
      return "dropout mask of softmax";
    case LayerTensor::kSoftmaxDropped:
      return "softmax after dropout";
    case LayerTensor::kAttentionOutput:
      return "input of the projection";
    case LayerTensor::kAttentionMask:
      return "dropout mask of attention";
    case LayerTensor::kSecondAttention:
      return "attention to the encoder";
    case LayerTensor::kSecondNormInput:
      return "input of norm 2";
    case LayerTensor::kSecondNormOutput:
      return "its output, input of up";
    case LayerTensor::kUp:
      return "output of up";
    case LayerTensor::kGate:
      return "gate and its silu";
    case LayerTensor::kActivated:
      return "input of down";
    case LayerTensor::kRouting:
      return "router's logits and choices";
    case LayerTensor::kExperts:
      return "gate and up of experts";
    case LayerTensor::kFeedMask:
      return "dropout mask of feed-forward";
    case LayerTensor::kNormNumbers:
      return "mean and deviation of rows";
  }
  return "";
}

std::map<LayerTensor, int64_t> kept_tensors(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  if (run.model.kind == "t5")
    throw Error(
        Code::kBadConfig,
        "the layers of a t5 are of two kinds, and this is about models with one\n  fix: a gpt, llama, moe or bert");
  model_table(run, micro_batch, kernels);  // throws for what has no table
  return TableBuilder(run, micro_batch, kernels).kept(run.model.is_bert() ? bert_style() : decoder_style(run.model));
}

std::map<LayerTensor, double> layer_activation_terms(const LayerShape& layer, int t, bool sequence_parallel,
                                                     RecomputeKind recompute) {
  layer_activation_bytes(layer, t);  // throws where t does not divide the heads
  const double sbh = layer.s * layer.b * layer.h, scores = layer.a * layer.s * layer.s * layer.b;
  if (recompute == RecomputeKind::kFull) return {{LayerTensor::kFirstNormInput, 2 * sbh}};
  std::map<LayerTensor, double> out;
  for (const Term& term : kTerms) {
    if (term.scores > 0 && recompute == RecomputeKind::kSelective) continue;
    out[term.tensor] = (term.sbh * sbh + term.scores * scores) / (term.is_cut || sequence_parallel ? t : 1);
  }
  return out;
}

std::string_view activation_equation(LayerTensor tensor) {
  for (const Term& term : kTerms)
    if (term.tensor == tensor) return term.equation;
  return "";
}

}  // namespace herd::spec
