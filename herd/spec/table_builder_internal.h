// Defines what the layer tables of all kinds of models share: the parameters of a transformer layer, and what it costs.
// Symbols: B sequences and T tokens of a micro-batch, R = B*T rows of this rank, D width, V vocabulary, A heads * head
// width, K width of keys and values with the copies of tensor-parallel ranks, F feed-forward width, S keys that a query
// meets.
// Threads: one at a time.
#pragma once

#include <string>
#include <vector>

#include "herd/spec/build_model_table.h"

namespace herd::spec {

inline constexpr int64_t kPieceRows = 2048;  // rows of a large matrix that a product copies at a time, as nn does

struct LayerStyle {
  enum class Feed : uint8_t { kGelu, kSwiGlu, kRelu };
  Feed feed = Feed::kGelu;
  bool biases = true;      // linear layers have biases
  bool causal = true;      // a token attends to no later token
  bool memory = false;     // a second attention reads the encoder's output, which is another input of the block
  bool positions = false;  // attention has a table of relative positions: 32 buckets a head
};

class TableBuilder {
 public:
  TableBuilder(const RunFile& run, int64_t micro_batch, Kernels kernels);

  int add_group(const std::string& name, std::vector<ParameterShape> parameters);
  void add_block(BlockShape block, std::vector<int> groups);
  ModelTable take() { return std::move(table_); }

  void add_norm(std::vector<ParameterShape>& out, const std::string& name) const;
  // Adds a rows x columns weight, and a bias where `bias`. Rows are outputs. `cut` is the dimension that
  // tensor-parallel ranks share: 0 outputs, 1 inputs, -1 neither.
  void add_linear(std::vector<ParameterShape>& out, const std::string& name, int64_t rows, int64_t columns, int cut,
                  bool bias) const;
  std::vector<ParameterShape> layer_parameters(const std::string& prefix, const LayerStyle& style) const;

  // Returns a block that looks up R rows in tables that have `rows` rows together; with `norm` it normalises them.
  BlockShape embedding(int64_t rows, bool norm) const;
  BlockShape layer(const std::string& name, const LayerStyle& style) const;
  // Return the parts of a decoder that tensor-parallel ranks share (program_table).
  BlockShape cut_embedding() const;
  BlockShape positions() const;
  BlockShape norm(const std::string& name) const;
  BlockShape cut_attention(const std::string& name, const LayerStyle& style) const;
  BlockShape add(const std::string& name) const;
  BlockShape cut_feed(const std::string& name, const LayerStyle& style) const;
  BlockShape cut_head() const;
  // Returns the loss block: final norm, `dense` more D x D layers, output layer, loss and both gradients, by chunks.
  BlockShape head(int dense) const;

 private:
  int64_t graph_bytes(const LayerStyle& style) const;
  int64_t matrix_bytes() const;                                  // bytes of an attention's T x T matrices, one a head
  int64_t saved_scores() const;                                  // bytes of T x T matrices that its graph keeps
  int64_t attention_scratch(int64_t matrices) const;             // bytes beyond the block's graph; may be negative
  int64_t product_bytes(int64_t inputs, int64_t outputs) const;  // bytes of a product's fp32 copies; 0 but for fp16
  int64_t first_half_of_loss(int64_t vocab) const;               // scratch bytes
  int64_t second_half_scratch(int64_t rows, int64_t columns) const;  // bytes, for the gradient of a matrix
  // Returns the bytes of a piece of a matrix's gradient before it is converted to fp32.
  int64_t gradient_piece(int64_t rows, int64_t columns) const;
  std::vector<InnerCollective> inner(int reduces_forward, int reduces_backward, const LayerStyle* style) const;
  // Returns the cost of a forward that keeps no graph and holds at most `elements` at a time.
  PassCost without_graph(const PassCost& forward, int64_t elements) const;
  void add_cache(BlockShape& block, const LayerStyle& style) const;
  void add_logits(BlockShape& block, int64_t vocab) const;  // `vocab` counts the words of this rank

  const RunFile::Model& m_;
  int64_t feeds(const LayerStyle& style) const;  // counts the R*F tensors that the feed-forward part keeps
  int64_t norm_bytes(int64_t rows) const;        // bytes that a norm keeps beside its input
  BlockShape part(const std::string& name, Split split) const;
  // Returns the rows that norms, sums and dropout work on: with sequence parallel the longest shard of R.
  int64_t rows_of_rank() const { return sequence_ ? (R_ + tp_ - 1) / tp_ : R_; }

  int64_t tp_, B_, T_, S_, R_, D_, V_, F_, A_, K_;
  bool sequence_ = false;                       // strategy.sequence_parallel is on
  int64_t kept_input_ = 0;                      // elements of its input that a cut block's graph keeps: R*D or 0
  int64_t element_ = 4, gradient_element_ = 4;  // bytes of one element
  int64_t cp_ = 1;
  int copies_ = 1;          // tensor-parallel ranks that hold the same key and value heads
  bool selective_ = false;  // strategy.recompute is "selective"
  bool in_fp32_ = false;    // products and attention of fp16 are computed in fp32
  ModelTable table_;
};

ModelTable decoder_table(const RunFile& run, int64_t micro_batch, Kernels kernels);  // gpt, llama
ModelTable split_decoder_table(const RunFile& run, int64_t micro_batch, Kernels kernels);
ModelTable bert_table(const RunFile& run, int64_t micro_batch, Kernels kernels);
ModelTable t5_table(const RunFile& run, int64_t micro_batch, Kernels kernels);

}  // namespace herd::spec
