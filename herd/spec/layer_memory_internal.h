// Follows the memory that a transformer layer's passes hold, op by op in the order in which nn and autograd run them.
//   R rows, D width, A heads * head width, K key and value width, F feed-forward width, M one T x T matrix of each
//   head.
// A pass begins with 0 bytes held: neither its input, nor what backward finds (the graph, the output's gradient)
// counts. What backward gives back of these makes room for the rest. Where the two halves of backward run apart, the
// first one keeps the inputs and output gradients of the matrices. Check: with 2*D <= F, no dropout and flash
// attention, a backward holds most in its feed-forward part: R*F elements with gelu, whose output's gradient takes the
// place of the output, and 2*R*F with swiglu. Threads: pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace herd::spec {

inline constexpr int64_t kPieceRows = 2048;  // rows of a large matrix that a product copies at a time, as nn does

// Adds up what a pass takes and gives back, and finds the most that it holds at a time.
class HeldBytes {
 public:
  void take(int64_t bytes) {
    held_ += bytes;
    most_ = std::max(most_, held_);
  }
  void give(int64_t bytes) { held_ -= bytes; }
  void take_briefly(int64_t bytes) { most_ = std::max(most_, held_ + bytes); }  // takes bytes and gives them back

  int64_t held() const { return held_; }  // negative where more of what was there before has been given back
  int64_t most() const { return most_; }

 private:
  int64_t held_ = 0, most_ = 0;
};

enum class Feed : uint8_t { kGelu, kSwiGlu, kRelu };

// Experts in place of a feed-forward layer.
struct MixtureSizes {
  int64_t experts = 0;  // 0 = a feed-forward layer
  int64_t top_k = 0;
  int64_t shared_ffn = 0;
  bool has_losses = false;
  int64_t ranks = 1;  // that hold equal parts of the experts
};

// Sizes on one rank: A, K, F and heads are those of its part of the layer.
struct LayerSizes {
  int64_t B = 0, T = 0, S = 0;  // sequences, tokens and keys of a micro-batch
  int64_t R = 0, D = 0, A = 0, K = 0, F = 0;
  int64_t heads = 0, key_heads = 0;
  int64_t element = 4, gradient_element = 4;  // bytes of an element of weights, and of their gradients
  int64_t threads = 1;                        // threads of a rank, as far as known
  bool in_fp32 = false;                       // fp16 products and attention run in fp32
  bool on_device = false;                     // a device's kernels run the passes
  bool dropout = false, is_math = false, recomputes_attention = false;
  bool is_packed = false;        // sequences are packed of documents
  bool in_ring = false;          // keys and values pass around ranks that share tokens, and no heads are exchanged
  bool has_key_product = false;  // keys and values are a product of their own
  bool has_biases = true, has_qkv_bias = true, is_layernorm = true, is_rotary = false;
  bool has_qk_norm = false;      // heads of queries and keys go through a norm
  bool has_shared_gate = false;  // a sigmoid scales what shared experts give
  int64_t gathered_choices = 0;  // bytes of the choices of other ranks' tokens, where a router needs whole sequences
  bool norms_after = false;      // norms are of the sums with the residual
  Feed feed = Feed::kGelu;
  MixtureSizes mixture = {};  // of experts of width F
};

// The two halves of backward run together, or the second one later: it makes the gradients of matrices.
enum class Halves : uint8_t { kTogether, kApart };

// Says what a part of a layer may give back besides what it has taken itself.
struct PartEnds {
  bool owns_dy = false;     // the gradient of its output
  bool owns_input = false;  // its input, which its first product keeps
};

class LayerMemory {
 public:
  explicit LayerMemory(const LayerSizes& sizes) : s_(sizes) {}

  void forward(HeldBytes& held) const;                  // ends with the graph and the output held
  void backward(HeldBytes& held, Halves halves) const;  // ends with the input's gradient held

  // The parts of a layer lie between the output of a norm and what is added to the residual.
  void attention_forward(HeldBytes& held) const;
  void attention_backward(HeldBytes& held, Halves halves, const PartEnds& ends) const;
  void feed_forward(HeldBytes& held) const;
  void feed_backward(HeldBytes& held, Halves halves, const PartEnds& ends) const;

  // A dense layer of D x D, gelu and norm, of R rows.
  void transform_forward(HeldBytes& held) const;                  // ends with the graph, rows included, and the output
  void transform_backward(HeldBytes& held, Halves halves) const;  // ends with the gradient of the rows held

  // What follows attention: the sum with the residual, norm, feed-forward part and the second sum.
  void rest_forward(HeldBytes& held) const;
  void rest_backward(HeldBytes& held, Halves halves) const;

  // The parts of attention of which context-parallel ranks have tokens or heads (context_part_shapes.cpp): the product
  // of a norm's output, of which `exchanged` elements are handed on; that of attention's output, with the dropout
  // before the sum where the rest of the layer is joined to it; and attention alone, of sizes of its own.
  void product_of_heads_forward(HeldBytes& held, int64_t exchanged) const;
  void product_of_heads_backward(HeldBytes& held, Halves halves, const PartEnds& ends) const;
  void output_of_heads_forward(HeldBytes& held) const;
  void output_of_heads_backward(HeldBytes& held, Halves halves, bool has_rest) const;
  void heads_forward(HeldBytes& held, int64_t padded_rows) const;
  void heads_backward(HeldBytes& held, int64_t padded_rows) const;
  // The parts of a mixture whose experts several ranks hold (expert_part_shapes.cpp).
  void route_forward(HeldBytes& held) const;
  void route_backward(HeldBytes& held, Halves halves) const;
  void own_experts_forward(HeldBytes& held) const;
  void own_experts_backward(HeldBytes& held, Halves halves) const;
  // Attention in a ring of so many ranks; `keys` are the elements of one rank's keys and values. The rank that holds
  // most counts: in later steps some have all queries and half of the keys, others the reverse.
  void ring_forward(HeldBytes& held, int64_t keys, int64_t ranks) const;
  void ring_backward(HeldBytes& held, int64_t keys, int64_t ranks) const;

  // Takes the gradients of the input and of the norm's weights. The latter stay until the block's pass ends.
  void norm_backward(HeldBytes& held, int64_t rows) const;
  // Takes a copy of so many values in which some are dropped.
  void drop(HeldBytes& held, int64_t values, int64_t element) const;

  // Returns the bytes that a product of so many rows needs while its matrix and its bias get their gradients.
  int64_t gradient_scratch(int64_t rows, int64_t inputs, int64_t outputs, bool has_bias) const;
  int64_t second_half_of_attention() const;
  int64_t second_half_of_feed() const;
  int64_t second_half_of_route() const;
  int64_t second_half_of_experts() const;
  // Bytes that a mixture of experts keeps beside its input and the outputs of gates and ups; those of them that the
  // second half of a backward reads, and what it needs while it runs.
  int64_t kept_of_routing() const;
  int64_t pending_of_routing() const;
  // Bytes that it keeps of gates and ups, and of the rows that ranks exchange: those that have come, as many as can
  // come, and the outputs that have come back.
  int64_t kept_of_experts() const;
  int64_t kept_of_shared_gate() const;  // of outputs of shared experts, and what scales them
  int64_t kept_of_head_norms() const;   // of queries and keys before their norms, and of these norms
  int64_t head_norm_weights() const { return s_.has_qk_norm ? 2 * s_.A / s_.heads * s_.element : 0; }
  int64_t rows_of_experts() const;  // rows that the experts of this rank have, at most where ranks exchange them
  // Bytes of what sorts the rows of a rank's experts.
  int64_t order_of_rows() const;
  LayerMemory shared_experts() const;  // as a feed-forward layer
  int64_t norm_weights() const { return (s_.is_layernorm ? 2 : 1) * s_.D * s_.element; }
  int64_t norm_numbers(int64_t rows) const { return rows * (s_.is_layernorm ? 2 * s_.element : 4); }  // that it keeps

 private:
  void forward_with_norms_after(HeldBytes& held) const;
  void backward_with_norms_after(HeldBytes& held, Halves halves) const;
  int64_t rows(int64_t width) const { return s_.R * width * s_.element; }
  int64_t in_attention(int64_t width) const { return s_.R * width * (s_.in_fp32 ? 4 : s_.element); }
  bool copies_queries() const { return s_.heads > 1 && (s_.B > 1 || s_.key_heads < s_.heads); }
  void multiply(HeldBytes& held, int64_t inputs, int64_t outputs) const;
  void multiply_backward(HeldBytes& held, int64_t inputs, int64_t outputs, Halves halves, bool has_bias) const;
  int64_t expert_rows() const;         // rows that an expert multiplies at a time
  int64_t gradient_of_expert() const;  // bytes that the gradient of one of its matrices needs
  void shared_forward(HeldBytes& held) const;
  void shared_backward(HeldBytes& held, Halves halves) const;
  void choose_experts(HeldBytes& held) const;
  int64_t choice() const { return s_.on_device ? 0 : 8; }      // bytes of an expert's number; a device has none
  int64_t sums_of_tokens(int64_t tokens) const;                // bytes that adding up the rows of each token needs
  void run_experts(HeldBytes& held) const;                     // ends with gates, ups and the rows' outputs held
  void choose_backward(HeldBytes& held, Halves halves) const;  // ends with the gradient of the router's input held
  // Ends with the gradients of rows held, and with the weights of rows and their gradients.
  void run_experts_backward(HeldBytes& held, Halves halves) const;
  void mixture_forward(HeldBytes& held) const;
  void mixture_backward(HeldBytes& held, Halves halves, const PartEnds& ends) const;
  void rotate(HeldBytes& held) const;
  void norm_heads(HeldBytes& held) const;           // of a product that is held; ends with what stands in its place
  void norm_heads_backward(HeldBytes& held) const;  // of a gradient that is held
  void math_attention(HeldBytes& held, bool with_graph) const;
  void flash_backward(HeldBytes& held) const;
  void math_backward(HeldBytes& held) const;
  int64_t flash_buffer(bool is_backward) const;
  LayerMemory of_pairs(int64_t queries, int64_t keys) const;  // of tokens that meet in one step of a ring
  int64_t ring_element() const;                               // bytes of an element that a ring multiplies
  int64_t ring_queries() const;
  int64_t ring_keys() const;
  void ring_part_forward(HeldBytes& held) const;
  void ring_part_backward(HeldBytes& held, bool queries_are_cut) const;
  void ring_merge(HeldBytes& held) const;
  int64_t of_document(int64_t width) const;  // results of attention for one document, as long as a sequence

  LayerSizes s_;
};

}  // namespace herd::spec
