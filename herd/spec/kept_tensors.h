// Lists what a transformer layer keeps for backward, tensor by tensor: as herd's tables count it, and as Korthikanti et
// al. 2022 do (activations.h). Threads: pure.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "herd/spec/activations.h"
#include "herd/spec/build_model_table.h"

namespace herd::spec {

// In the order in which a layer makes them.
enum class LayerTensor : uint8_t {
  kFirstNormInput,
  kFirstNormOutput,  // q, k and v are made of it
  kQueriesAndKeys,
  kValues,
  kFp32Copies,       // of q, k, v and the output, where fp16 is computed in fp32
  kScoreSums,        // the number that flash attention keeps of each row of scores
  kSoftmax,          // the T x T probabilities of each head
  kSoftmaxMask,      // of their dropout
  kSoftmaxDropped,   // what dropout leaves of them
  kAttentionOutput,  // the output projection reads it
  kAttentionMask,    // of the dropout after the projection
  kSecondAttention,  // all that a decoder's attention to its encoder keeps
  kSecondNormInput,
  kSecondNormOutput,  // the feed-forward part reads it
  kUp,                // what gelu or the gate reads
  kGate,              // of swiglu: the gate and its silu
  kActivated,         // the last product reads it
  kRouting,           // the router's logits and choices, and the order of rows by expert
  kExperts,           // outputs of the gate and of up for each token and expert
  kFeedMask,          // of the dropout after the feed-forward part
  kNormNumbers        // what norms keep of each row beside their inputs
};

std::string_view tensor_name(LayerTensor tensor);  // returns "queries and keys"

// Returns the bytes of a layer of the run's model, for a micro-batch of B sequences; tensors that it does not keep are
// left out. They sum to BlockShape::graph_bytes of a layer in model_table(). Throws as that does, and kBadConfig for
// t5, whose layers are of two kinds.
std::map<LayerTensor, int64_t> kept_tensors(const RunFile& run, int64_t micro_batch, Kernels kernels = Kernels::kCpu);

// Returns the terms of layer_activation_bytes(), which they sum to.
std::map<LayerTensor, double> layer_activation_terms(const LayerShape& layer, int t = 1, bool sequence_parallel = false,
                                                     RecomputeKind recompute = RecomputeKind::kNone);
// Returns "2sbh/t" for a term of it; empty for a tensor that is none of its terms.
std::string_view activation_equation(LayerTensor tensor);

}  // namespace herd::spec
