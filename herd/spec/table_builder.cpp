#include "herd/spec/key_copies.h"
#include "herd/spec/loss_chunk.h"
#include "herd/spec/table_builder_internal.h"

#include <algorithm>

namespace herd::spec {

namespace {

// Returns the tokens of a sequence that each context-parallel rank has, with padding. In a ring it has two ranges.
int64_t tokens_of_rank(const RunFile& run) {
  const int64_t ranges = run.mesh.cp > 1 && run.strategy.context == "ring" ? 2 : 1, all = ranges * run.mesh.cp;
  return (run.model.context + all - 1) / all * ranges;
}

}  // namespace

TableBuilder::TableBuilder(const RunFile& run, int64_t micro_batch, Kernels kernels)
    : m_(run.model),
      tp_(run.mesh.tp),
      B_(micro_batch),
      T_(tokens_of_rank(run)),
      S_(m_.context),
      R_(B_ * T_),
      D_(m_.width),
      V_(m_.vocab),
      F_(m_.is_moe()  ? m_.width_of_expert()
         : m_.ffn > 0 ? m_.ffn
                      : 4 * m_.width),
      sequence_(run.strategy.sequence_parallel && run.mesh.tp > 1),
      packed_(run.data.packs_documents()),
      cp_(run.mesh.cp),
      ep_(run.mesh.ep),
      copies_(key_copies(run)),
      selective_(run.strategy.recompute == "selective"),
      threads_(std::max<int64_t>(1, run.train.threads)) {
  gathers_again_ = sequence_ && !run.strategy.keep_gathered;
  kept_input_ = gathers_again_ ? 0 : R_ * D_;
  const int64_t head = m_.head_width > 0 ? m_.head_width : m_.width / m_.heads;
  A_ = m_.heads * head;
  K_ = (m_.kv_heads > 0 ? m_.kv_heads : m_.heads) * head * copies_;
  if (run.strategy.precision == "bf16") table_.compute_dtype = DType::kBF16;
  if (run.strategy.precision == "fp16") table_.compute_dtype = DType::kF16;
  element_ = size_of(table_.compute_dtype);
  if (run.strategy.gradient_precision == "same") table_.gradient_dtype = table_.compute_dtype;
  gradient_element_ = size_of(table_.gradient_dtype);
  on_device_ = kernels == Kernels::kDevice || kernels_of(run) == Kernels::kDevice;
  in_fp32_ = table_.compute_dtype == DType::kF16 && !on_device_;
  table_.tp = static_cast<int>(tp_);
  table_.cp = static_cast<int>(cp_);
  table_.ep = static_cast<int>(ep_);
  table_.ring = cp_ > 1 && run.strategy.context == "ring";
  table_.micro_batch = B_;
  table_.tokens = R_;
  table_.target_bytes = R_ * 8;
  table_.attention = m_.dropout > 0 ? Attention::kMath : Attention::kFlash;
  table_.recomputes_attention = selective_ && m_.dropout > 0;
}

int TableBuilder::add_group(const std::string& name, std::vector<ParameterShape> parameters) {
  table_.groups.push_back({name, std::move(parameters)});
  return static_cast<int>(table_.groups.size()) - 1;
}

int TableBuilder::add_experts(const std::string& name, std::vector<ParameterShape> parameters) {
  const int group = add_group(name, std::move(parameters));
  table_.groups.back().of_experts = ep_ > 1;
  return group;
}

void TableBuilder::add_block(BlockShape block, std::vector<int> groups) {
  if (block.layer < 0) block.layer = static_cast<int>(table_.blocks.size());
  block.groups = std::move(groups);
  table_.blocks.push_back(std::move(block));
}

void TableBuilder::add_norm(std::vector<ParameterShape>& out, const std::string& name) const {
  out.push_back({name + ".weight", {D_}});
  if (m_.norm == "layernorm") out.push_back({name + ".bias", {D_}});
}

void TableBuilder::add_linear(std::vector<ParameterShape>& out, const std::string& name, int64_t rows, int64_t columns,
                              int cut, bool bias) const {
  out.push_back({name + ".weight", {rows, columns}, cut});
  if (bias) out.push_back({name + ".bias", {rows}, cut == 0 ? 0 : -1});
}

std::vector<ParameterShape> TableBuilder::layer_parameters(const std::string& prefix, const LayerStyle& style) const {
  std::vector<ParameterShape> out;
  add_norm(out, prefix + "ln_1");
  const size_t qkv = out.size();
  const int64_t keys = K_ / copies_;
  add_linear(out, prefix + "attn.qkv", A_ + 2 * keys, D_, 0, style.has_qkv_bias());
  for (size_t i = qkv; i < out.size(); ++i) out[i].sections = {{A_}, {keys, copies_}, {keys, copies_}};
  for (const char* norm : {"attn.q_norm.weight", "attn.k_norm.weight"}) {  // of each head: all ranks hold copies
    const int64_t head = A_ / m_.heads;
    if (style.qk_norm) out.push_back({prefix + norm, {head}, 0, {{head, static_cast<int>(tp_)}}});
  }
  add_linear(out, prefix + "attn.proj", D_, A_, 1, style.biases);
  if (style.positions) out.push_back({prefix + "attn.positions", {32, m_.heads}, 1});
  if (style.memory) {
    add_norm(out, prefix + "ln_memory");
    add_linear(out, prefix + "memory.q", A_, D_, 0, style.biases);
    add_linear(out, prefix + "memory.kv", 2 * keys, D_, 0, style.biases);
    add_linear(out, prefix + "memory.proj", D_, A_, 1, style.biases);
  }
  add_norm(out, prefix + "ln_2");
  if (m_.is_moe()) {
    add_linear(out, prefix + "router", m_.experts, D_, -1, false);
    if (m_.shared_experts == 0) return out;
    const int64_t shared = m_.shared_experts * F_;
    add_linear(out, prefix + "shared.gate", shared, D_, -1, false);
    add_linear(out, prefix + "shared.up", shared, D_, -1, false);
    add_linear(out, prefix + "shared.down", D_, shared, -1, false);
    if (m_.has_shared_gate()) add_linear(out, prefix + "shared_gate", 1, D_, -1, false);
    return out;
  }
  if (style.feed == LayerStyle::Feed::kSwiGlu) add_linear(out, prefix + "mlp.gate", F_, D_, 0, style.biases);
  add_linear(out, prefix + "mlp.up", F_, D_, 0, style.biases);
  add_linear(out, prefix + "mlp.down", D_, F_, 1, style.biases);
  return out;
}

std::vector<ParameterShape> TableBuilder::expert_parameters(const std::string& prefix) const {
  std::vector<ParameterShape> out = {{prefix + "experts.gate.weight", {m_.experts, F_, D_}},
                                     {prefix + "experts.up.weight", {m_.experts, F_, D_}},
                                     {prefix + "experts.down.weight", {m_.experts, D_, F_}}};
  for (ParameterShape& parameter : out)
    parameter.used = static_cast<double>(m_.top_k) / static_cast<double>(m_.experts);
  return out;
}

std::vector<TensorShape> TableBuilder::with_router_losses() const {
  return {{.bytes = R_ * D_ * element_, .dtype = table_.compute_dtype},
          {.bytes = B_ * 2 * 4, .dtype = DType::kF32, .extents = {{1, 1}, {2}}, .is_whole = tp_ > 1}};
}

double TableBuilder::feed_weights(const LayerStyle& style) const {
  const double gates = style.feed == LayerStyle::Feed::kSwiGlu ? 3 : 2;
  if (!m_.is_moe()) return gates * static_cast<double>(D_ * F_);
  return static_cast<double>((m_.experts + (m_.has_shared_gate() ? 1 : 0)) * D_) +
         gates * static_cast<double>((m_.top_k + m_.shared_experts) * D_ * F_);
}

BlockShape TableBuilder::embedding(int64_t rows, bool norm) const {
  BlockShape block{.name = "embedding"};
  block.backward_reads_weights = norm;
  const int64_t rd = R_ * D_ * element_;
  block.input_bytes = R_ * 8;
  block.output_bytes = rows_of_rank() * D_ * element_;
  const int64_t norm_numbers = norm ? norm_bytes(R_) : 0;
  block.graph_bytes = block.input_bytes + (norm ? rd + norm_numbers : 0) + (packed_ && rows > V_ ? R_ * 8 : 0);
  block.forward.memory_bytes = static_cast<double>((norm ? 5 : 3) * rd);
  // The gradient of the embedding is zeroed whole, then rows are added.
  block.backward.memory_bytes = static_cast<double>(rows / tp_ * D_ * gradient_element_ + (norm ? 6 : 3) * rd);
  const bool has_positions = rows > V_;
  block.looked_up_bytes = (R_ + (has_positions ? T_ : 0)) * D_ * element_;
  const LayerMemory memory = memory_of({});
  HeldBytes forward, backward;
  forward.take(rd + kSmallTensors);
  if (norm) forward.take(T_ * D_ * element_);                 // positions and the segment
  if (has_positions) {                                        // the sum takes the place of the words
    const int64_t positions = packed_ ? rd + 2 * R_ * 8 : 0;  // of each token, and their numbers
    forward.take(positions + rd);
    forward.give(positions + rd);
  }
  if (norm) {
    forward.give(T_ * D_ * element_);
    forward.take(rd + norm_numbers);
  }
  if (m_.dropout > 0) memory.drop(forward, R_ * D_, element_);
  if (norm && m_.dropout > 0) forward.give(rd);
  if (m_.dropout > 0) memory.drop(backward, R_ * D_, element_);
  if (norm) {
    memory.norm_backward(backward, R_);
    backward.give(rd + norm_numbers + (m_.dropout > 0 ? rd : 0));
  }
  // Summed over sequences, of the table, and of segments.
  if (has_positions && !packed_) backward.take((T_ + S_ + (norm ? 5 : 0)) * D_ * element_);
  backward.take_briefly(kSmallTensors + row_gradient_scratch(R_));
  block.forward.scratch_bytes = forward.most() - rd - (norm ? rd + norm_numbers : 0);
  block.backward.scratch_bytes = backward.most();
  const int64_t added = (packed_ ? 2 : 1) * R_ * D_ + (packed_ ? 4 * R_ : 0);  // words and positions, and their numbers
  block.without_graph = without_graph(block.forward, rows > V_ ? added : 0);
  block.inner = inner(0, 1, nullptr);
  return block;
}

int64_t TableBuilder::matrix_bytes() const { return B_ * m_.heads / tp_ * T_ * S_ * (in_fp32_ ? 4 : element_); }

int64_t TableBuilder::saved_scores() const { return table_.attention == Attention::kMath ? 2 * matrix_bytes() : 0; }

// Returns the bytes that adding the gradients of so many rows of a table takes: copies in the gradient's type, and of
// one row in fp32.
int64_t TableBuilder::row_gradient_scratch(int64_t rows) const {
  if (on_device_) return rows * 4 * 8;  // sorted ids and their order, and what sorting needs
  return (gradient_element_ != element_ ? rows * D_ * gradient_element_ : 0) + (gradient_element_ != 4 ? 4 * D_ : 0);
}

// Returns the bytes of fp32 copies while R rows are multiplied with a matrix: of the matrix, its input and its output.
int64_t TableBuilder::product_bytes(int64_t inputs, int64_t outputs) const {
  return in_fp32_ ? 4 * (inputs * outputs + R_ * (inputs + outputs)) : 0;
}

LayerSizes TableBuilder::sizes_of(const LayerStyle& style) const {
  const int64_t head = A_ / m_.heads;
  return {.B = B_,
          .T = T_,
          .S = S_,
          .R = R_,
          .D = D_,
          .A = A_ / tp_,
          .K = K_ / tp_,
          .F = F_ / tp_,
          .heads = m_.heads / tp_,
          .key_heads = K_ / tp_ / head,
          .element = element_,
          .gradient_element = gradient_element_,
          .threads = threads_,
          .in_fp32 = in_fp32_,
          .on_device = on_device_,
          .dropout = m_.dropout > 0,
          .is_math = table_.attention == Attention::kMath,
          .recomputes_attention = table_.recomputes_attention,
          .is_packed = packed_,
          .in_ring = table_.ring,
          .has_key_product = copies_ > 1,
          .has_biases = style.biases,
          .has_qkv_bias = style.has_qkv_bias(),
          .is_layernorm = m_.norm == "layernorm",
          .is_rotary = m_.is_rotary(),
          .has_qk_norm = style.qk_norm,
          .has_shared_gate = m_.has_shared_gate(),
          .gathered_choices = gathered_choices(),
          .norms_after = style.norms_after,
          .feed = style.feed,
          .mixture = {.experts = m_.is_moe() ? m_.experts : 0,
                      .top_k = m_.top_k,
                      .shared_ffn = m_.shared_experts * F_,
                      .has_losses = m_.has_router_losses(),
                      .ranks = ep_}};
}

int64_t TableBuilder::feeds(const LayerStyle& style) const {
  return style.feed == LayerStyle::Feed::kRelu ? 1 : style.feed == LayerStyle::Feed::kGelu ? 2 : on_device_ ? 3 : 4;
}

int64_t TableBuilder::expert_terms() const { return m_.is_moe() ? m_.top_k + m_.shared_experts : 1; }

int64_t TableBuilder::norm_bytes(int64_t rows) const { return memory_of({}).norm_numbers(rows); }

// A transformer layer keeps these tensors, of R*D elements unless said otherwise:
//   the input of the first norm and its output; q and attention's output, R*A each; k and v, R*K each;
//   the input of the second norm and its output; up and its gelu, R*F each.
// Relu keeps one tensor of R*F; swiglu keeps four: gate, its silu, up and their product. On a device
// backward computes the silu again. A layer that normalises after
// its sums keeps as many. A second attention adds a norm's input and output, its q, k, v and output.
// Experts keep two tensors of F for each row of a token and an expert, and what sorts these rows (nn/experts.h).
// LayerNorm keeps two numbers a row, RMSNorm one. Flash attention keeps one number per head and row, math attention
// keeps B*H*T*T probabilities before dropout and after it. Backward draws dropout masks again, so none is kept.
// With fp16, attention keeps q, k and v in fp32; the flash kernel keeps its output in fp32, beside the 16-bit one that
// the next product keeps.
// With sequence parallel, inputs of norms are shards of the rows. Their outputs are kept as they were gathered, or as
// shards where backward gathers them again.
std::map<LayerTensor, int64_t> TableBuilder::kept(const LayerStyle& style) const {
  const bool flash = table_.attention == Attention::kFlash;
  const int64_t shard = rows_of_rank() * D_ * element_, gathered = gathers_again_ ? shard : R_ * D_ * element_;
  const int64_t a = R_ * A_ / tp_ * element_, k = R_ * K_ / tp_ * element_;
  const int64_t f = R_ * (m_.is_moe() ? m_.shared_experts : 1) * F_ / tp_ * element_;
  const int64_t sums = flash ? R_ * m_.heads / tp_ * 4 : 0, scores = selective_ ? 0 : saved_scores();
  const int64_t copies = in_fp32_ ? R_ * (2 * (A_ + 2 * K_) + (flash ? 4 * A_ : 0)) / tp_ : 0;
  const int64_t second = shard + gathered + 2 * (a + k) + copies + sums + scores + shard;  // and the encoder's output
  std::map<LayerTensor, int64_t> out = {
      {LayerTensor::kFirstNormInput, shard},
      {LayerTensor::kFirstNormOutput, gathered},
      {LayerTensor::kQueriesAndKeys, a + k + memory_of(style).kept_of_head_norms()},
      {LayerTensor::kValues, k},
      {LayerTensor::kFp32Copies, copies},
      {LayerTensor::kScoreSums, sums},
      {LayerTensor::kSoftmax, scores / 2},
      {LayerTensor::kSoftmaxDropped, scores / 2},
      {LayerTensor::kAttentionOutput, a},
      {LayerTensor::kSecondAttention, style.memory ? second : 0},
      {LayerTensor::kSecondNormInput, shard},
      {LayerTensor::kSecondNormOutput, gathered},
      {LayerTensor::kUp, style.feed == LayerStyle::Feed::kRelu ? 0 : f},
      {LayerTensor::kGate, style.feed == LayerStyle::Feed::kSwiGlu ? (on_device_ ? f : 2 * f) : 0},
      {LayerTensor::kActivated, f},
      {LayerTensor::kRouting, memory_of(style).kept_of_routing()},
      {LayerTensor::kExperts,
       m_.is_moe() ? memory_of(style).kept_of_experts() + memory_of(style).kept_of_shared_gate() : 0},
      {LayerTensor::kNormNumbers, (style.memory ? 3 : 2) * norm_bytes(rows_of_rank())}};
  std::erase_if(out, [](const auto& tensor) { return tensor.second == 0; });
  return out;
}

// Where ranks share a layer, its parts run one by one. While one runs, the gradient of its output is whole, and that of
// the residual is there; so is an input that it gathers again.
int64_t TableBuilder::backward_most(const LayerMemory& memory, const LayerStyle& style, Halves halves) const {
  HeldBytes held, attention;
  if (tp_ == 1) {
    memory.backward(held, halves);
    return held.most();
  }
  memory.feed_backward(held, halves, {});
  memory.attention_backward(attention, halves, {});
  const int64_t shard = rows_of_rank() * D_, whole = R_ * D_;
  const int64_t released = halves == Halves::kApart
                               ? 0
                               : (kept_input_ + feeds(style) * R_ * F_ / tp_ + shard) * element_;  // of the other part
  return std::max(held.most(), attention.most() - released) +
         (2 * whole - shard + (gathers_again_ ? whole - shard : 0)) * element_;
}

int64_t TableBuilder::gathered_choices() const {
  return cp_ * tp_ > 1 && m_.routes_whole_sequences() ? cp_ * tp_ * rows_of_rank() * m_.top_k * 8 : 0;
}

// The norms read and write queries and keys, which come together with the values.
void TableBuilder::add_head_norms(BlockShape& block, const LayerStyle& style) const {
  if (!style.qk_norm) return;
  const auto bytes = static_cast<double>(R_ * (A_ + K_) / tp_ * element_);
  block.forward.memory_bytes += 4 * bytes;
  block.backward.memory_bytes += 8 * bytes;
}

int64_t TableBuilder::elements_in_mixture() const {
  return (5 + m_.top_k) * D_ + 3 * std::max<int64_t>(1, m_.shared_experts) * F_ +
         (m_.experts * 4 + m_.top_k * 28) / element_ + kSmallTensors;
}

BlockShape TableBuilder::layer(const std::string& name, const LayerStyle& style) const {
  BlockShape block{.name = name};
  const int64_t rd = R_ * D_, rf = R_ * expert_terms() * F_ / tp_, attentions = style.memory ? 2 : 1;
  const int64_t shard = rows_of_rank() * D_;  // elements that one layer hands to the next
  block.output_bytes = shard * element_;
  block.input_bytes = attentions * shard * element_;
  for (const auto& [tensor, bytes] : kept(style)) block.graph_bytes += bytes;
  block.score_bytes = attentions * saved_scores();
  const LayerMemory memory = memory_of(style);
  const int64_t ups = style.feed == LayerStyle::Feed::kSwiGlu ? 2 : 1;
  // The second half reads the inputs and output gradients of matrices, and what autograd returned for the norms.
  block.pending_bytes = R_ * ((2 * attentions + 2) * D_ + attentions * 2 * (A_ + K_) / tp_) * element_ +
                        (1 + ups) * rf * element_ + (attentions + 1) * memory.norm_weights() +
                        memory.head_norm_weights() + memory.pending_of_routing();
  const double weights =
      (static_cast<double>(attentions * (2 * A_ + 2 * K_) * D_) + feed_weights(style)) / static_cast<double>(tp_);
  const double rows = static_cast<double>(R_);
  const double scores = 4.0 * rows * static_cast<double>(S_) * static_cast<double>(A_ / tp_);
  const bool flash = table_.attention == Attention::kFlash;
  const double all_scores = (style.causal && flash ? 0.5 : 1.0) * scores + (style.memory ? scores : 0);
  block.forward.matmul_flops = 2 * rows * weights;
  block.forward.attention_flops = all_scores;
  // Two norms, two sums and the biases read and write R*D, or the rank's rows with sequence parallel; gelu does R*F.
  const int64_t second_attention = style.memory ? 7 * rd : 0;
  const int64_t sorted = m_.is_moe() ? 4 * m_.top_k * rd : 0;  // rows of experts are copied, and added up by token
  block.forward.memory_bytes =
      static_cast<double>((10 * shard + 4 * rd + second_attention + 4 * rf + sorted) * element_);
  block.backward.matmul_flops = 4 * rows * weights;
  block.backward.attention_flops = (flash ? 2.5 : 2) * all_scores;
  block.backward.memory_bytes =
      static_cast<double>((16 * shard + 6 * rd + 2 * second_attention + 6 * rf + 2 * sorted) * element_);
  add_head_norms(block, style);
  HeldBytes forward;
  memory.forward(forward);
  // Where ranks share a layer, the sum of attention's outputs is over when the feed-forward part runs.
  block.forward.scratch_bytes = forward.most() - forward.held() - (tp_ > 1 ? rd * element_ : 0);
  block.backward.scratch_bytes = backward_most(memory, style, Halves::kTogether) - rd * element_;
  block.first_half_scratch_bytes = backward_most(memory, style, Halves::kApart) - rd * element_ - block.pending_bytes;
  block.second_half_scratch_bytes = std::max(memory.second_half_of_attention(), memory.second_half_of_feed());
  const int64_t in_attention = (style.qk_norm ? 3 * A_ + 5 * K_ : 2 * A_ + 2 * K_) / tp_ + D_;
  const int64_t in_feed =
      m_.is_moe() ? elements_in_mixture() : 4 * D_ + (style.feed == LayerStyle::Feed::kSwiGlu ? 3 : 2) * F_ / tp_;
  block.without_graph = without_graph(block.forward, R_ * std::max({in_attention, in_feed, 5 * D_}));
  add_cache(block, style);
  block.inner = inner(1 + static_cast<int>(attentions), 1 + static_cast<int>(attentions), &style);
  add_mixture(block, R_);
  if (selective_ && block.score_bytes > 0) {
    block.backward.attention_flops += block.forward.attention_flops;
    block.backward.memory_bytes += 2.0 * static_cast<double>(block.score_bytes);
  }
  return block;
}

BlockShape TableBuilder::head(bool has_norm) const {
  BlockShape block{.name = "head"};
  if (!has_norm) block.split = Split::kCut;
  const int64_t rd = R_ * D_ * element_, vocab = (V_ + tp_ - 1) / tp_;
  block.input_bytes = has_norm ? rows_of_rank() * D_ * element_ : rd;
  const double rows = static_cast<double>(R_);
  block.forward.matmul_flops = 6 * rows * static_cast<double>(D_) * static_cast<double>(vocab);
  // Logits are written, read for the maximum, for the sum, and rewritten as their gradient.
  block.forward.memory_bytes = rows * static_cast<double>(vocab) * static_cast<double>(element_) * 5 +
                               (has_norm ? 6.0 : 3.0) * static_cast<double>(rd);
  const int64_t chunk = loss_chunk_rows(vocab, R_, on_device_);
  const LayerMemory memory = memory_of({});
  // The final norm's output and its gradient are there until the input's gradient is.
  const auto held_most = [&](int64_t logits, bool halves) {
    HeldBytes held;
    if (has_norm) held.take(2 * rd + memory.norm_numbers(R_) + kSmallTensors);
    held.take_briefly(logits + loss_numbers(R_, vocab, halves));
    if (halves) held.take(R_ * vocab * element_);
    if (has_norm) memory.norm_backward(held, R_);
    return held.most();
  };
  const int64_t wide = widens_logits() ? chunk * vocab * 4 : 0;
  block.pending_bytes = R_ * (vocab + D_) * element_ + (has_norm ? memory.norm_weights() : 0);
  block.forward.scratch_bytes = held_most(chunk * vocab * element_ + wide, false) - (has_norm ? block.input_bytes : 0);
  block.first_half_scratch_bytes =
      held_most(R_ * vocab * element_ + wide, true) - (has_norm ? rd : 0) - block.pending_bytes;
  block.second_half_scratch_bytes = memory.gradient_scratch(R_, D_, vocab, false);
  add_logits(block, vocab);
  if (has_norm) block.inner = inner(1, 0, nullptr);
  add_loss_collective(block, vocab);
  return block;
}

// A device's kernel has no fp32 copy of all logits, where no ranks share them.
bool TableBuilder::widens_logits() const { return element_ != 4 && !(on_device_ && tp_ == 1); }

BlockShape TableBuilder::masked_head(int64_t rows) const {
  BlockShape block{.name = "head"};
  const int64_t rd = R_ * D_ * element_, md = rows * D_ * element_, vocab = (V_ + tp_ - 1) / tp_;
  block.input_bytes = rows_of_rank() * D_ * element_;
  const auto m = static_cast<double>(rows);
  block.forward.matmul_flops = 6 * m * static_cast<double>(D_) * static_cast<double>(vocab + D_);
  block.forward.memory_bytes =
      m * static_cast<double>(vocab) * static_cast<double>(element_) * 5 + static_cast<double>(14 * md + 2 * rd);
  LayerSizes sizes = sizes_of(bert_style());
  sizes.R = rows;
  const LayerMemory memory(sizes);
  const int64_t chunk = loss_chunk_rows(vocab, rows, on_device_), wide = widens_logits() ? chunk * vocab * 4 : 0;
  const int64_t numbers = 3 * rows * 8 + 8 * kSmallTensors;  // of the rows, and their targets
  // The bias in fp32, and its gradient, of 16-bit rows a few at a time.
  const bool is_short = element_ != 4;
  const int64_t bias = is_short ? vocab * 4 : 0,
                bias_gradient = vocab * 4 * (2 + (is_short ? std::min<int64_t>(64, chunk) : 0));
  const auto held_most = [&](int64_t logits, Halves halves) {
    const bool apart = halves == Halves::kApart;
    HeldBytes held;
    held.take_briefly(R_ * (1 + 1 + 8 + 8));  // tokens by whether they count
    held.take(numbers);
    memory.transform_forward(held);
    held.take(md);
    held.take_briefly(
        logits + std::max({loss_numbers(rows, vocab, apart), 9 * rows + bias, apart ? 0 : 9 * rows + bias_gradient}));
    if (apart) held.take(rows * vocab * element_);
    memory.transform_backward(held, halves);
    held.take(rd + 2 * D_ * element_);  // and what adding rows to it takes
    return held.most();
  };
  block.pending_bytes = rows * (vocab + 3 * D_) * element_ + memory.norm_weights();
  block.forward.scratch_bytes = held_most(chunk * vocab * element_ + wide, Halves::kTogether) - block.input_bytes;
  block.first_half_scratch_bytes = held_most(rows * vocab * element_ + wide, Halves::kApart) - rd - block.pending_bytes;
  block.second_half_scratch_bytes = std::max(std::max(memory.gradient_scratch(rows, D_, vocab, false), bias_gradient),
                                             memory.gradient_scratch(rows, D_, D_, true));
  add_logits(block, vocab);
  block.inner = inner(1, 0, nullptr);
  add_loss_collective(block, vocab);
  return block;
}

// Ranks that share the vocabulary exchange three fp32 numbers of each row: its maximum, its sum, the target's logit.
void TableBuilder::add_loss_collective(BlockShape& block, int64_t vocab) const {
  if (tp_ == 1) return;
  const int64_t chunk = loss_chunk_rows(vocab, R_, on_device_);
  const int chunks = static_cast<int>((R_ + chunk - 1) / std::max<int64_t>(chunk, 1));
  block.inner.push_back({.axis = "tp", .is_all_reduce = false, .bytes = chunk * 3 * tp_ * 4, .times_forward = chunks});
}

// A layer holds x, its norm, the product with q, k and v, attention's output and its projection at one time. Later it
// holds both norms, both sums and the tensors of the feed-forward part. The block's input and output are not counted.
PassCost TableBuilder::without_graph(const PassCost& forward, int64_t elements) const {
  PassCost cost = forward;
  cost.scratch_bytes = elements * element_ + product_bytes(D_, std::max(F_, A_ + 2 * K_) / tp_);
  return cost;
}

void TableBuilder::add_cache(BlockShape& block, const LayerStyle& style) const {
  if (style.causal && !style.memory) block.cache_bytes = 2 * B_ * S_ * K_ / tp_ * (in_fp32_ ? 4 : element_);
}

void TableBuilder::add_logits(BlockShape& block, int64_t vocab) const {
  block.logits_bytes = B_ * V_ * 4;
  block.without_graph.matmul_flops = 2.0 * static_cast<double>(B_ * D_ * vocab);
  block.without_graph.memory_bytes = static_cast<double>(block.logits_bytes + 3 * B_ * D_ * element_);
  const int64_t parts = (element_ == 4 ? 0 : V_) + (tp_ > 1 ? vocab : 0);  // 16-bit logits, and those before the gather
  block.without_graph.scratch_bytes = B_ * (D_ + parts) * element_;
}

// Of all rows a loss knows whether they count and their targets (9 bytes). In a chunk, it picks the logits of targets
// (32 bytes a row). Where ranks share the vocabulary, each has what all of them tell: three numbers a row and rank, in
// fp32 and fp64, and three more that it makes of them (60 bytes a row and rank, and 48 a row). Products of 16 bits need
// copies in fp32, at other times.
int64_t TableBuilder::loss_numbers(int64_t rows, int64_t vocab, bool halves) const {
  const int64_t chunk = loss_chunk_rows(vocab, rows, on_device_), piece = std::min(kPieceRows, vocab);
  return 9 * rows + std::max({chunk * (tp_ > 1      ? 60 * tp_ + 48
                                       : on_device_ ? 8
                                                    : 32),
                              halves ? 0 : memory_of({}).gradient_scratch(chunk, D_, vocab, false),
                              in_fp32_ ? 4 * (piece + chunk) * D_ : 0});
}

// Tensor parallel sums the outputs of cut parts in forward, the gradients of their inputs in backward. With sequence
// parallel each tensor is gathered before a cut part reads it and scattered after it has been summed. A recomputed
// forward makes no sum at its end; backward uses the input that it has gathered. Context parallel gathers the keys and
// values of all tokens on every rank.
std::vector<InnerCollective> TableBuilder::inner(int inputs, int sums, const LayerStyle* style) const {
  std::vector<InnerCollective> out;
  const bool layer = style != nullptr;
  if (sequence_) {
    const int regathers = layer && gathers_again_ ? inputs : 0, gathers = inputs + sums;
    out.push_back({.axis = "tp",
                   .is_all_reduce = false,
                   .bytes = rows_of_rank() * tp_ * D_ * element_,
                   .times_forward = gathers,
                   .times_backward = gathers + regathers,
                   .times_recompute = gathers - 1 - (regathers > 0 ? 1 : 0)});
  } else if (tp_ > 1) {
    out.push_back({.axis = "tp",
                   .bytes = R_ * D_ * element_,
                   .times_forward = sums,
                   .times_backward = inputs,
                   .times_recompute = std::max(0, sums - 1)});
  }
  if (cp_ > 1 && layer) {
    const int64_t keys = 2 * B_ * S_ * K_ / tp_ * element_;
    out.push_back({.axis = "cp",
                   .is_all_reduce = false,
                   .bytes = keys,
                   .times_forward = 1,
                   .times_backward = 2,
                   .times_recompute = 1});
  }
  return out;
}

void TableBuilder::add_mixture(BlockShape& block, int64_t rows) const {
  if (!m_.is_moe()) return;
  block.routing_bytes = rows * m_.top_k * 8;
  share_choices(block);
}

void TableBuilder::share_choices(BlockShape& block) const {
  block.shares_choices = gathered_choices() > 0;
  if (!block.shares_choices) return;
  block.routing_bytes += B_ * m_.experts * 4 + B_ * 8;  // counts of whole sequences, and their losses
  const std::string axis = cp_ == 1 ? "tp" : tp_ == 1 ? "cp" : "cp*tp";
  block.inner.push_back({.axis = axis, .is_all_reduce = false, .bytes = gathered_choices(), .times_forward = 1});
  if (tp_ > 1 && m_.has_router_losses())
    block.inner.push_back({.axis = axis, .bytes = cp_ * B_ * 2 * 4, .times_forward = 1});
}

}  // namespace herd::spec
