// Builds the layer tables of all kinds of models from what they share: the parameters, bytes and FLOPs of a transformer
// layer's parts. Symbols: B sequences and T tokens of this rank in a micro-batch, R = B*T rows, D width, V vocabulary.
// A is heads * head width, K key and value width with the copies of tp ranks, F feed-forward width. S is the number of
// keys that a query meets. Sizes are of the whole model; tp_ divides those that tensor parallel cuts. Threads: pure.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "herd/spec/build_model_table.h"
#include "herd/spec/kept_tensors.h"
#include "herd/spec/layer_memory_internal.h"

namespace herd::spec {

inline constexpr int64_t kSmallTensors = 64;  // bytes of counts, sums and ranges that a pass makes beside its values

struct LayerStyle {
  using Feed = spec::Feed;
  Feed feed = Feed::kGelu;
  bool biases = true;        // true: linear layers have biases
  bool qkv_bias = false;     // true: that of queries, keys and values has, where others have none
  bool qk_norm = false;      // true: heads of queries and keys go through a norm
  bool causal = true;        // true: a token sees none after it
  bool norms_after = false;  // true: the norms are of the sums with the residual, and not of what the parts read
  bool memory = false;       // true: a second attention looks at the encoder's output, which comes along as input
  bool positions = false;    // true: the layer has a table of relative positions, 32 buckets for each head
  bool has_qkv_bias() const { return biases || qkv_bias; }
};

class TableBuilder {
 public:
  TableBuilder(const RunFile& run, int64_t micro_batch, Kernels kernels);

  // Adds a group to the table, and returns its index.
  int add_group(const std::string& name, std::vector<ParameterShape> parameters);
  // Adds a block that reads these groups to the table. Its layer is its index if it has none.
  void add_block(BlockShape block, std::vector<int> groups);
  ModelTable take() { return std::move(table_); }  // returns the table; call it last

  // These two append the parameters of a norm, or of a linear layer, to `out`.
  void add_norm(std::vector<ParameterShape>& out, const std::string& name) const;
  // The weight has `rows` outputs and `columns` inputs. `cut` is the dim that tensor-parallel ranks cut: 0 outputs, 1
  // inputs, -1 neither.
  void add_linear(std::vector<ParameterShape>& out, const std::string& name, int64_t rows, int64_t columns, int cut,
                  bool bias) const;
  // Returns all parameters of a layer, whose names begin with `prefix`, but for those of its experts.
  std::vector<ParameterShape> layer_parameters(const std::string& prefix, const LayerStyle& style) const;
  std::vector<ParameterShape> expert_parameters(const std::string& prefix) const;
  int add_experts(const std::string& name, std::vector<ParameterShape> parameters);  // as add_group()

  // Returns the block that looks up R rows in tables of `rows` rows in all; with `norm`, a norm follows.
  BlockShape embedding(int64_t rows, bool norm) const;
  // Returns the loss block of masked words: of `rows` rows, a dense layer, gelu, norm, output layer with a bias, loss
  // and gradients.
  BlockShape masked_head(int64_t rows) const;
  BlockShape layer(const std::string& name, const LayerStyle& style) const;  // returns a whole transformer layer
  std::map<LayerTensor, int64_t> kept(const LayerStyle& style) const;        // returns what it keeps for backward
  // The rest return blocks of a decoder that tensor-parallel ranks share, or context-parallel ones (program_table()).
  BlockShape cut_embedding() const;
  BlockShape positions() const;
  // `adds` says whether the gradient of its input is added to another one, that of the residual.
  BlockShape norm(const std::string& name, bool adds) const;
  BlockShape cut_attention(const std::string& name, const LayerStyle& style) const;
  // Where context-parallel ranks share tokens, these stand in its place, with one of the next two between them.
  // The first norm may be joined to the former, and the rest of the layer to the latter.
  BlockShape projection(const std::string& name, const LayerStyle& style, bool has_norm) const;
  BlockShape output(const std::string& name, const LayerStyle& style, bool has_rest) const;
  BlockShape head_attention(const std::string& name, const LayerStyle& style) const;
  BlockShape ring_attention(const std::string& name, const LayerStyle& style) const;
  BlockShape add(const std::string& name) const;
  BlockShape cut_feed(const std::string& name, const LayerStyle& style) const;
  BlockShape experts_of_rows(const std::string& name, const LayerStyle& style) const;  // in its place in a mixture
  // Where expert-parallel ranks share experts, these three stand in its place.
  BlockShape route(const std::string& name, const LayerStyle& style) const;
  BlockShape own_experts(const std::string& name, const LayerStyle& style) const;
  BlockShape combine(const std::string& name) const;
  // Returns the two tensors of a layer that gives the losses of routers beside the activation.
  std::vector<TensorShape> with_router_losses() const;
  // Returns the loss block: final norm, unless it is a block of its own, output layer, loss and both gradients, by
  // chunks. Without the norm tensor-parallel ranks have gathered its rows.
  BlockShape head(bool has_norm = true) const;

 private:
  // All these return bytes unless said otherwise.
  int64_t matrix_bytes() const;                                  // one T x T matrix of each head
  int64_t saved_scores() const;                                  // T x T matrices that an attention's graph keeps
  int64_t product_bytes(int64_t inputs, int64_t outputs) const;  // fp32 copies that an fp16 product makes; else 0
  int64_t row_gradient_scratch(int64_t rows) const;              // what adding rows to a table's gradient takes
  // Returns what a loss of so many rows holds beside logits and rows of D.
  int64_t loss_numbers(int64_t rows, int64_t vocab, bool halves) const;
  // Returns the collectives inside a block whose cut parts read `inputs` tensors and make `sums` of them. `style` is
  // null for all blocks but layers.
  std::vector<InnerCollective> inner(int inputs, int sums, const LayerStyle* style) const;
  // Returns the cost of a forward without a graph, which holds at most so many elements at a time.
  PassCost without_graph(const PassCost& forward, int64_t elements) const;
  bool widens_logits() const;                                        // true: 16-bit logits have a copy in fp32
  void add_cache(BlockShape& block, const LayerStyle& style) const;  // sets cache_bytes
  void add_logits(BlockShape& block, int64_t vocab) const;  // sets what logits cost with `vocab` words on this rank
  void add_loss_collective(BlockShape& block, int64_t vocab) const;  // adds what ranks tell each other of their words

  const RunFile::Model& m_;                      // borrowed
  int64_t feeds(const LayerStyle& style) const;  // returns how many tensors of R*F the feed-forward part keeps
  int64_t expert_terms() const;                  // returns how many feed-forward layers of width F a row goes through
  int64_t norm_bytes(int64_t rows) const;        // bytes that a norm keeps beside its input
  LayerSizes sizes_of(const LayerStyle& style) const;
  LayerMemory memory_of(const LayerStyle& style) const { return LayerMemory(sizes_of(style)); }
  LayerSizes sizes_of_heads(const LayerStyle& style) const;  // of attention on this context-parallel rank's heads
  int64_t exchanged_width() const;  // elements of q, k and v of a token that context-parallel ranks exchange
  std::vector<TensorShape> by_rank(int64_t width) const;  // a tensor with a slice of its tokens for each context rank
  int64_t backward_most(const LayerMemory& memory, const LayerStyle& style, Halves halves) const;  // of a whole layer
  void add_head_norms(BlockShape& block, const LayerStyle& style) const;  // what norms of q and k cost beside scratch
  double feed_weights(
      const LayerStyle& style) const;  // elements of feed-forward matrices that a row is multiplied with
  // Returns the bytes of the choices of all tokens of its sequences, where ranks tell them each other; else 0.
  int64_t gathered_choices() const;
  int64_t elements_in_mixture() const;                      // that a token needs while its experts run without a graph
  void add_mixture(BlockShape& block, int64_t rows) const;  // what a block has that routes so many, if it does
  void share_choices(BlockShape& block) const;  // where tensor or context ranks tell each other what a router chooses
  LayerSizes sizes_of_mixture(const LayerStyle& style) const;   // of whole experts, for this rank's rows
  BlockShape part(const std::string& name, Split split) const;  // returns a block of rows of D, without costs
  // Sets the scratch bytes of both passes and of backward's first half from what they hold. The gradients of the
  // inputs, of so many bytes, do not count.
  static void set_scratch(BlockShape& block, int64_t input_gradients, const std::function<void(HeldBytes&)>& forward,
                          const std::function<void(HeldBytes&, Halves)>& backward);
  // Returns the rows that norms, sums and dropout work on; with sequence parallel, the longest shard of them.
  int64_t rows_of_rank() const { return sequence_ ? (R_ + tp_ - 1) / tp_ : R_; }

  int64_t tp_, B_, T_, S_, R_, D_, V_, F_, A_, K_;
  bool sequence_ = false;                       // true: sequence parallel
  bool packed_ = false;                         // true: sequences are packed of documents
  bool gathers_again_ = false;                  // true: backward gathers inputs of cut parts again
  int64_t kept_input_ = 0;                      // elements of its input that a cut block's graph keeps: R*D or 0
  int64_t element_ = 4, gradient_element_ = 4;  // bytes of an element of weights, and of their gradients
  int64_t cp_ = 1;                              // context-parallel ranks
  int64_t ep_ = 1;                              // expert-parallel ranks
  int copies_ = 1;                              // ranks that hold the same key and value heads
  bool selective_ = false;                      // true: backward computes attention again
  int64_t threads_ = 1;                         // threads of a rank, as far as the run file says
  bool on_device_ = false;                      // true: a device's kernels run the passes
  bool in_fp32_ = false;                        // true: fp16 products and attention run in fp32
  ModelTable table_;
};

LayerStyle decoder_style(const RunFile::Model& model);  // of gpt and llama
LayerStyle bert_style();

// Says which parts of a decoder's layer are joined into one block: all, those between which no ranks exchange anything
// (program_table()).
enum class Join { kLayer, kBetweenRanks };
ModelTable decoder_table(const RunFile& run, int64_t micro_batch, Kernels kernels, Join join);  // of gpt, llama and moe
ModelTable bert_table(const RunFile& run, int64_t micro_batch, Kernels kernels);
ModelTable t5_table(const RunFile& run, int64_t micro_batch, Kernels kernels);

}  // namespace herd::spec
