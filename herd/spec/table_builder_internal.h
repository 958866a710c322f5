// Defines what the layer tables of all kinds share: rows of a transformer layer, and what it costs.
// R = B*T rows of this rank, D width, A heads * head width, K key/value width with the copies of tp ranks, F
// feed-forward width, S keys that a query meets. Sizes ending in _ are those of one tensor-parallel rank, where tensor
// parallel cuts them.
#pragma once

#include <string>
#include <vector>

#include "herd/spec/model_table.h"

namespace herd::spec {

inline constexpr int64_t kPieceRows = 2048;  // of large matrices that a product copies at a time, as nn does

struct LayerStyle {
  enum class Feed : uint8_t { kGelu, kSwiGlu, kRelu };
  Feed feed = Feed::kGelu;
  bool biases = true;      // of linear layers
  bool causal = true;      // a token sees none after it
  bool memory = false;     // a second attention, over the encoder's output, which comes along as input
  bool positions = false;  // a table of relative positions: 32 buckets a head
};

class TableBuilder {
 public:
  TableBuilder(const RunFile& run, int64_t micro_batch, Kernels kernels);

  int add_group(const std::string& name, std::vector<ParameterShape> parameters);
  void add_block(BlockShape block, std::vector<int> groups);
  ModelTable take() { return std::move(table_); }

  void add_norm(std::vector<ParameterShape>& out, const std::string& name) const;
  // Rows are outputs. cut = 0: outputs are shared among tensor-parallel ranks, 1: inputs, -1: neither.
  void add_linear(std::vector<ParameterShape>& out, const std::string& name, int64_t rows, int64_t columns, int cut,
                  bool bias) const;
  std::vector<ParameterShape> layer_parameters(const std::string& prefix, const LayerStyle& style) const;

  // Looks up R rows in tables of `rows` rows together; with `norm` it is normalised.
  BlockShape embedding(int64_t rows, bool norm) const;
  BlockShape layer(const std::string& name, const LayerStyle& style) const;
  // The parts of a decoder that tensor-parallel ranks share (program_table).
  BlockShape cut_embedding() const;
  BlockShape positions() const;
  BlockShape norm(const std::string& name) const;
  BlockShape cut_attention(const std::string& name, const LayerStyle& style) const;
  BlockShape add(const std::string& name) const;
  BlockShape cut_feed(const std::string& name, const LayerStyle& style) const;
  BlockShape cut_head() const;
  // Final norm, `dense` more D x D layers, output layer, loss and both gradients, by chunks.
  BlockShape head(int dense) const;

 private:
  int64_t graph_bytes(const LayerStyle& style) const;
  int64_t matrix_bytes() const;                                  // bytes of an attention's T x T matrices, one a head
  int64_t saved_scores() const;                                  // those that its graph keeps
  int64_t attention_scratch(int64_t matrices) const;             // beyond the block's whole graph; may be negative
  int64_t product_bytes(int64_t inputs, int64_t outputs) const;  // fp32 copies around one; 0 but for fp16
  int64_t first_half_of_loss(int64_t vocab) const;               // bytes that it takes and gives back
  int64_t late_scratch(int64_t rows, int64_t columns) const;     // bytes, for the gradient of a matrix
  int64_t gradient_piece(int64_t rows, int64_t columns) const;   // of a matrix's gradient that is not yet fp32
  std::vector<InnerCollective> inner(int reduces_forward, int reduces_backward, const LayerStyle* style) const;
  Cost without_graph(const Cost& forward, int64_t elements) const;  // which holds so many at a time
  void add_cache(BlockShape& block, const LayerStyle& style) const;
  void add_logits(BlockShape& block, int64_t vocab) const;  // `vocab`: words of this rank

  const RunFile::Model& m_;
  int64_t feeds(const LayerStyle& style) const;  // R*F tensors that the feed-forward part keeps
  int64_t norm_bytes(int64_t rows) const;        // that a norm keeps beside its input
  BlockShape part(const std::string& name, Split split) const;
  // Rows that norms, sums and dropout work on: with sequence parallel the longest shard of them.
  int64_t rows_of_rank() const { return sequence_ ? (R_ + tp_ - 1) / tp_ : R_; }

  int64_t tp_, B_, T_, S_, R_, D_, V_, F_, A_, K_;
  bool sequence_ = false;                       // parallel
  int64_t kept_input_ = 0;                      // elements that a cut block's graph has of its input, R*D or none
  int64_t element_ = 4, gradient_element_ = 4;  // bytes
  int64_t cp_ = 1;
  int copies_ = 1;          // of key and value heads
  bool selective_ = false;  // recompute
  bool in_fp32_ = false;    // fp16 products and attention
  ModelTable table_;
};

ModelTable decoder_table(const RunFile& run, int64_t micro_batch, Kernels kernels);  // gpt, llama
ModelTable split_decoder_table(const RunFile& run, int64_t micro_batch, Kernels kernels);
ModelTable bert_table(const RunFile& run, int64_t micro_batch, Kernels kernels);
ModelTable t5_table(const RunFile& run, int64_t micro_batch, Kernels kernels);

}  // namespace herd::spec
