#include "herd/spec/layer_memory_internal.h"

#include <algorithm>

namespace herd::spec {
namespace {

constexpr int64_t kConvertedRows = 64;  // rows of a piece that are converted to fp32 at a time, as nn does
constexpr int64_t kRotatedTokens = 64;  // tokens that are rotated at a time, as nn does
constexpr int64_t kSummedParts = 16;    // parts in which nn sums the gradient of an RMSNorm's weights
constexpr int64_t kDeviceSummedParts = 1024,
                  kRowsOfPart = 8;    // the same on a device, and rows that a part has at least
constexpr int64_t kExpertRows = 512;  // rows that an expert multiplies at a time, as nn does
constexpr int64_t kScalar = 16;       // bytes of a factor that torch makes a tensor of

}  // namespace

// A 16-bit value is multiplied with its mask of one byte, by a copy of either. A device's kernel draws the mask.
void LayerMemory::drop(HeldBytes& held, int64_t values, int64_t element) const {
  held.take(values * element);
  if (element != 4 && !s_.on_device) held.take_briefly(values + values * element + kScalar);
}

int64_t LayerMemory::gradient_scratch(int64_t rows, int64_t inputs, int64_t outputs, bool has_bias) const {
  const int64_t piece = std::min(kPieceRows, outputs), converted = std::min(kConvertedRows, outputs);
  const bool differ = s_.gradient_element != s_.element;
  const int64_t matrix = s_.in_fp32 ? 4 * (rows * inputs + piece * (rows + inputs))
                         : differ   ? (piece * s_.element + converted * s_.gradient_element) * inputs
                                    : 0;
  const int64_t bias =
      differ ? (std::min(kConvertedRows, rows) + 1) * outputs * s_.gradient_element : outputs * s_.element;
  return has_bias ? std::max(matrix, bias) : matrix;
}

// fp16 is multiplied in fp32: copies of the input, the matrix and the output.
void LayerMemory::multiply(HeldBytes& held, int64_t inputs, int64_t outputs) const {
  held.take(rows(outputs));
  if (s_.in_fp32) held.take_briefly(4 * (inputs * outputs + s_.R * (inputs + outputs) + outputs));
}

void LayerMemory::multiply_backward(HeldBytes& held, int64_t inputs, int64_t outputs, Halves halves,
                                    bool has_bias) const {
  if (halves == Halves::kTogether) held.take_briefly(gradient_scratch(s_.R, inputs, outputs, has_bias));
  held.take(rows(inputs));
  if (s_.in_fp32) held.take_briefly(4 * (inputs * outputs + s_.R * (inputs + outputs)));
}

// Half of the values, rotated, the two products of which each of the others is the sum, and an fp32 copy of 16-bit
// ones.
void LayerMemory::rotate(HeldBytes& held) const {
  if (!s_.is_rotary || s_.on_device) return;  // a device's kernel turns heads in place
  const int64_t tokens = std::min(kRotatedTokens, s_.T), half = s_.A / s_.heads / 2;
  const int64_t values = s_.B * tokens * (s_.heads + s_.key_heads) * half;
  held.take_briefly(4 * ((s_.element == 4 ? 3 : 4) * values + tokens * (3 * half + 1)) + kScalar);
}

int64_t LayerMemory::kept_of_head_norms() const {
  return s_.has_qk_norm ? rows(s_.A + s_.K) + s_.R * (s_.heads + s_.key_heads) * 4 : 0;
}

// Norms keep copies of queries and keys; their outputs and the values then come together in one tensor.
void LayerMemory::norm_heads(HeldBytes& held) const {
  if (!s_.has_qk_norm) return;
  const int64_t product = rows(s_.A + 2 * s_.K);
  held.take(kept_of_head_norms() + rows(s_.A + s_.K));
  held.take(product);
  held.give(rows(s_.A + s_.K) + product);
}

void LayerMemory::norm_heads_backward(HeldBytes& held) const {
  if (!s_.has_qk_norm) return;
  const int64_t product = rows(s_.A + 2 * s_.K), width = s_.A / s_.heads;
  held.take(rows(s_.A + s_.K) + head_norm_weights());
  held.take_briefly(rows(s_.A) + 4 * width * (kSummedParts + 1));  // a head's gradients, one after the other
  held.give(kept_of_head_norms());
  held.take(product);
  held.give(rows(s_.A + s_.K) + product);
}

// The kernel works on blocks of queries and keys, of so many tokens as torch chooses by the number of queries.
int64_t LayerMemory::flash_buffer(bool is_backward) const {
  if (s_.on_device) {  // the gradient of queries in fp32, and a number a row; keys and values for each head of queries
    const int64_t grouped = s_.key_heads < s_.heads ? 2 * in_attention(s_.A) : 0;
    if (is_backward) return s_.R * (4 * s_.A + 4 * s_.heads) + grouped;
    return s_.element == 4 && (s_.is_packed || s_.in_ring) ? grouped : 0;  // flash_attention.h copies them in fp32
  }
  const int64_t queries = std::min<int64_t>(s_.T, s_.T >= 768 ? 256 : s_.T >= 192 ? 64 : 32);
  const int64_t scores = queries * std::min<int64_t>(s_.S, 512), width = s_.A / s_.heads;
  const int64_t reduced = s_.in_fp32 || s_.element == 4 ? 0 : 2;
  return s_.threads *
         (is_backward ? scores * 2 * (4 + reduced) + 4 * queries : scores * (4 + reduced) + 4 * queries * (2 + width));
}

int64_t LayerMemory::of_document(int64_t width) const {
  return s_.is_packed ? s_.S * (width * (s_.in_fp32 ? 4 : s_.element) + s_.heads * 4) : 0;
}

// Takes what backward needs, with_graph, and the output. The matrices of keys and values are copied; so are queries
// whose heads don't follow each other.
void LayerMemory::math_attention(HeldBytes& held, bool with_graph) const {
  const int64_t a = in_attention(s_.A), k = in_attention(s_.K), element = s_.in_fp32 ? 4 : s_.element;
  const int64_t matrix = s_.B * s_.heads * s_.T * s_.S * element;
  const int64_t mask = (s_.is_packed ? s_.B : 1) * s_.T * s_.S * element;
  held.take(a + k + kScalar);  // scaled queries, transposed keys
  if (copies_queries()) held.take(a);
  held.take(matrix);
  if (copies_queries()) held.give(a);
  held.take(mask + matrix);  // scores, masked
  held.give(mask + matrix);
  held.take(matrix);  // softmax
  held.give(matrix + kScalar);
  if (!with_graph) held.give(a + k);
  drop(held, s_.B * s_.heads * s_.T * s_.S, element);
  held.take(k + a);  // values, output
  if (!with_graph) held.give(2 * matrix + k);
}

void LayerMemory::attention_forward(HeldBytes& held) const {
  const int64_t qkv = rows(s_.A + 2 * s_.K), used = in_attention(s_.A + 2 * s_.K), a = in_attention(s_.A);
  multiply(held, s_.D, s_.A + 2 * s_.K);
  norm_heads(held);
  rotate(held);
  if (s_.in_fp32) {
    held.take(used);
    held.give(qkv);
  }
  if (!s_.is_math) {
    held.take(a + s_.R * s_.heads * 4);
    held.take_briefly(flash_buffer(false) + of_document(s_.A));
    if (s_.in_fp32) held.take(rows(s_.A));
    return multiply(held, s_.A, s_.D);
  }
  math_attention(held, !s_.recomputes_attention);
  const bool copies_output = s_.heads > 1;  // heads come together
  if (copies_output) held.take(a);
  if (s_.in_fp32) held.take(rows(s_.A));
  multiply(held, s_.A, s_.D);
  if (copies_output) held.give(a);
  if (s_.in_fp32) held.give(a);
  if (!s_.recomputes_attention) held.give(used);
}

void LayerMemory::flash_backward(HeldBytes& held) const {
  const int64_t qkv = in_attention(s_.A + 2 * s_.K);
  held.take(qkv);
  held.take_briefly(flash_buffer(true) + of_document(s_.A + 2 * s_.K));
  held.give(in_attention(s_.A));         // the output's gradient
  held.give(qkv + s_.R * s_.heads * 4);  // of the graph
  if (s_.in_fp32) held.give(in_attention(s_.A));
}

void LayerMemory::math_backward(HeldBytes& held) const {
  const int64_t a = in_attention(s_.A), k = in_attention(s_.K), element = s_.in_fp32 ? 4 : s_.element;
  const int64_t matrix = s_.B * s_.heads * s_.T * s_.S * element;
  if (s_.recomputes_attention) math_attention(held, true);
  if (copies_queries()) held.take(a);  // the output's gradient by heads
  if (copies_queries() && !s_.recomputes_attention) held.give(a);
  held.take(matrix + k);  // gradients of what dropout has left, and of values
  held.give(matrix + k);  // what it has left, and values
  if (copies_queries() || !s_.recomputes_attention) held.give(a);
  drop(held, s_.B * s_.heads * s_.T * s_.S, element);
  held.give(matrix);
  held.take(matrix);  // softmax
  held.give(2 * matrix);
  held.take(a + k);  // gradients of queries and keys
  held.give(matrix + a + k);
  held.take_briefly(a);                                                           // scaled
  if (s_.recomputes_attention) held.give(2 * a + in_attention(s_.A + 2 * s_.K));  // output, its gradient, q, k and v
  held.take_briefly(a);                                                           // heads come together
}

void LayerMemory::attention_backward(HeldBytes& held, Halves halves, const PartEnds& ends) const {
  const bool together = halves == Halves::kTogether;
  const int64_t qkv = rows(s_.A + 2 * s_.K);
  const bool shares_output = !s_.is_math && !s_.in_fp32;  // the product's input is the output that flash keeps
  multiply_backward(held, s_.A, s_.D, halves, s_.has_biases);
  if (together && !shares_output) held.give(rows(s_.A));
  if (together && ends.owns_dy) held.give(rows(s_.D));
  if (s_.in_fp32) {
    held.take(in_attention(s_.A));
    held.give(rows(s_.A));
  }
  if (s_.is_math)
    math_backward(held);
  else
    flash_backward(held);
  if (together && shares_output) held.give(rows(s_.A));
  if (s_.in_fp32) {
    held.take(rows(s_.A));
    held.give(in_attention(s_.A));
    held.take(rows(2 * s_.K));
    held.give(in_attention(2 * s_.K));
  }
  held.take_briefly(qkv);  // in one tensor, after which the parts go
  rotate(held);
  norm_heads_backward(held);
  multiply_backward(held, s_.D, s_.A + 2 * s_.K, halves, s_.has_qkv_bias);
  if (s_.has_key_product) held.take_briefly(2 * rows(s_.D));  // of the keys' product, and the sum of both
  if (together) held.give(qkv + (ends.owns_input ? rows(s_.D) : 0));
}

int64_t LayerMemory::kept_of_routing() const {
  const auto& [experts, top_k, shared, losses, ranks] = s_.mixture;
  if (experts == 0) return 0;
  // Of whole sequences: counts, and the sequence of each row.
  const int64_t counts = s_.gathered_choices > 0 && losses ? s_.B * experts * 4 + s_.R * 8 : 0;
  return s_.R * (experts * 4 + top_k * (choice() + 4 + 16)) + (experts + 1) * 8 +
         counts;  // logits; choice, weight, row, token
}

int64_t LayerMemory::pending_of_routing() const {
  return s_.mixture.experts == 0
             ? 0
             : s_.R * (s_.mixture.experts * 4 + s_.mixture.top_k * choice()) + (s_.mixture.experts + 1) * 8 +
                   kept_of_shared_gate();  // as many gradients as it keeps
}

// A token goes to different experts, so a rank gets at most one row of it for each expert that the rank holds.
int64_t LayerMemory::rows_of_experts() const {
  const auto& [experts, top_k, shared, losses, ranks] = s_.mixture;
  return ranks == 1 ? s_.R * top_k : ranks * s_.R * std::min(top_k, experts / ranks);
}

int64_t LayerMemory::order_of_rows() const {
  const int64_t held = s_.mixture.experts / s_.mixture.ranks;
  return rows_of_experts() * (choice() + 4 + 16) + (held + 1) * 8;  // expert, weight, row and token
}

int64_t LayerMemory::kept_of_experts() const {
  const int64_t products = 2 * rows_of_experts() * s_.F * s_.element;
  if (s_.mixture.ranks == 1) return products;
  return products + rows_of_experts() * s_.D * s_.element + order_of_rows() + s_.mixture.top_k * rows(s_.D);
}

// A CPU adds up a token's rows without a buffer.
int64_t LayerMemory::sums_of_tokens(int64_t tokens) const {
  return s_.on_device ? tokens * s_.D * (4 + s_.element + (s_.element == 4 ? 0 : 4)) : 0;
}

int64_t LayerMemory::kept_of_shared_gate() const { return s_.has_shared_gate ? rows(s_.D) + rows(1) : 0; }

LayerMemory LayerMemory::shared_experts() const {
  LayerSizes sizes = s_;
  sizes.F = s_.mixture.shared_ffn;
  sizes.mixture = {};
  return LayerMemory(sizes);
}

int64_t LayerMemory::gradient_of_expert() const {
  return std::max(gradient_scratch(expert_rows(), s_.D, s_.F, false),
                  gradient_scratch(expert_rows(), s_.F, s_.D, false));
}

int64_t LayerMemory::expert_rows() const { return std::min(kExpertRows, s_.mixture.ranks * s_.R); }

void LayerMemory::choose_experts(HeldBytes& held) const {
  const auto& [experts, top_k, shared, losses, ranks] = s_.mixture;
  const int64_t logits = s_.R * experts * 4;
  held.take(logits);
  if (s_.element != 4) held.take_briefly(4 * (s_.R + experts) * s_.D);  // the router's operands in fp32
  held.take(s_.R * top_k * 12);                                         // choices and their weights
  held.take_briefly((losses ? 2 : 1) * logits + 4 * s_.R + 16 * s_.B * experts);
  if (s_.gathered_choices > 0)  // choices by ranks, by tokens, and in their order, and places
    held.take_briefly(3 * s_.gathered_choices + 4 * s_.gathered_choices / top_k + logits);
  held.take(kept_of_routing() - logits - s_.R * top_k * 12);
}

// Counts as if one expert had all rows that it can have.
void LayerMemory::run_experts(HeldBytes& held) const {
  const int64_t piece = expert_rows();
  held.take(2 * rows_of_experts() * s_.F * s_.element);  // of gates and of ups
  held.take(rows_of_experts() * s_.D * s_.element);
  held.take_briefly(piece * (s_.D + s_.F) * s_.element + (s_.in_fp32 ? 4 * (s_.D * s_.F + piece * (s_.D + s_.F)) : 0));
}

// Ends with their output held.
void LayerMemory::shared_forward(HeldBytes& held) const {
  shared_experts().feed_forward(held);
  const int64_t gate = s_.has_shared_gate ? rows(1) : 0;
  held.take(kept_of_shared_gate() + gate);  // the product and the gate, beside the outputs that it keeps
  held.give(gate);
}

void LayerMemory::mixture_forward(HeldBytes& held) const {
  const int64_t d = rows(s_.D);
  choose_experts(held);
  run_experts(held);
  held.take_briefly(sums_of_tokens(s_.R));
  held.take(d);
  held.give(rows_of_experts() * s_.D * s_.element);
  if (s_.mixture.shared_ffn == 0) return;
  shared_forward(held);
  held.take(d);  // the sum
  held.give(2 * d);
}

// Ends with the gradient of their input held.
void LayerMemory::shared_backward(HeldBytes& held, Halves halves) const {
  const int64_t d = rows(s_.D);
  if (s_.has_shared_gate) {
    held.take(d + rows(1));  // gradients of the shared experts' outputs, and of what scales them
    held.take_briefly(d);
    held.give(kept_of_shared_gate());
    held.take(d);  // of its input
  }
  shared_experts().feed_backward(held, halves, {.owns_dy = s_.has_shared_gate});
  // In the sum of the gradients of the input.
  if (s_.has_shared_gate) held.give(d + (halves == Halves::kTogether ? rows(1) : 0));
}

void LayerMemory::run_experts_backward(HeldBytes& held, Halves halves) const {
  const bool together = halves == Halves::kTogether;
  const int64_t piece = expert_rows();
  // Weights of rows and their gradients; gradients of rows.
  held.take(2 * rows_of_experts() * 4 + rows_of_experts() * s_.D * s_.element);
  if (!together) held.take(rows_of_experts() * s_.F * s_.element);
  // The gradients of rows' weights are sums in fp32, for which a CPU converts 16-bit products; weights are converted to
  // 16 bits.
  const bool is_short = s_.element != 4;
  const int64_t hidden = (together ? 5 : 4) + (is_short && !s_.on_device ? 1 : 0),
                product = 4 * (s_.D * s_.F + piece * (s_.D + s_.F));
  held.take_briefly(piece * ((s_.D + hidden * s_.F) * s_.element + 4 + (is_short ? s_.element : 0)));
  if (s_.in_fp32) held.take_briefly(product + piece * std::max((s_.D + 2 * s_.F + 1) * s_.element, 8 * s_.D));
  held.take_briefly(piece * (s_.D + s_.F) * s_.element + (together ? gradient_of_expert() : 0));
}

void LayerMemory::choose_backward(HeldBytes& held, Halves halves) const {
  const int64_t experts = s_.mixture.experts, logits = s_.R * experts * 4;
  held.take(2 * logits);  // scores and their gradients
  held.take_briefly(2 * logits + 8 * s_.R + 16 * s_.B * experts);
  held.take(rows(s_.D));
  if (s_.element != 4) held.take_briefly(4 * (2 * s_.R + experts) * s_.D);
  held.take_briefly(4 * experts * s_.D);
  held.give(2 * logits + (halves == Halves::kTogether ? logits : 0));
}

// The router's gradient is a sum with that of the experts' input, and both with that of the shared experts'.
void LayerMemory::mixture_backward(HeldBytes& held, Halves halves, const PartEnds& ends) const {
  const auto& [experts, top_k, shared, losses, ranks] = s_.mixture;
  const bool together = halves == Halves::kTogether;
  const int64_t d = rows(s_.D), choices = s_.R * top_k, of_rows = rows_of_experts();
  if (shared > 0) shared_backward(held, halves);
  run_experts_backward(held, halves);
  held.take_briefly(sums_of_tokens(s_.R));
  held.take(choices * 4 + d);
  held.give(2 * of_rows * 4 + of_rows * s_.D * s_.element);
  if (together) held.give(2 * of_rows * s_.F * s_.element + choices * 8 + (experts + 1) * 8 + (ends.owns_dy ? d : 0));
  held.give(choices * 8);
  choose_backward(held, halves);
  held.give(choices * (4 + 12));
  if (together && ends.owns_input) held.give(d);
  held.take_briefly(d);
  held.give(d + (shared > 0 ? d : 0));
}

// Gives the rows, and the output of the shared experts.
void LayerMemory::route_forward(HeldBytes& held) const {
  choose_experts(held);
  held.take(s_.mixture.top_k * rows(s_.D));
  if (s_.mixture.shared_ffn > 0) shared_forward(held);
}

void LayerMemory::route_backward(HeldBytes& held, Halves halves) const {
  const int64_t d = rows(s_.D);
  if (s_.mixture.shared_ffn > 0) shared_backward(held, halves);
  held.take_briefly(sums_of_tokens(s_.R));
  held.take(d);  // the sum of each token's rows
  choose_backward(held, halves);
  held.take_briefly(d);
  held.give(d + (s_.mixture.shared_ffn > 0 ? d : 0));
}

void LayerMemory::own_experts_forward(HeldBytes& held) const {
  held.take(order_of_rows());
  run_experts(held);
  const int64_t of_rows = rows_of_experts();
  held.take_briefly(std::max(of_rows * s_.D * s_.element, sums_of_tokens(of_rows)));  // in the order in which they came
}

void LayerMemory::own_experts_backward(HeldBytes& held, Halves halves) const {
  const int64_t of_rows = rows_of_experts();
  run_experts_backward(held, halves);
  held.take_briefly(std::max(of_rows * s_.D * s_.element, sums_of_tokens(of_rows)));
  held.give(2 * of_rows * 4);
}

void LayerMemory::feed_forward(HeldBytes& held) const {
  if (s_.mixture.experts > 0) return mixture_forward(held);
  const int64_t products = s_.feed == Feed::kSwiGlu ? 2 : 1, f = rows(s_.F);
  for (int64_t i = 0; i < products; ++i) {
    multiply(held, s_.D, s_.F);
    if (s_.feed == Feed::kSwiGlu && !(s_.on_device && i == 0)) held.take(f);  // silu of the gate, then the product
  }
  if (s_.feed != Feed::kSwiGlu) held.take(f);
  multiply(held, s_.F, s_.D);
  if (s_.feed == Feed::kRelu) held.give(f);  // the graph has the result alone
}

void LayerMemory::feed_backward(HeldBytes& held, Halves halves, const PartEnds& ends) const {
  if (s_.mixture.experts > 0) return mixture_backward(held, halves, ends);
  const bool together = halves == Halves::kTogether, is_gated = s_.feed == Feed::kSwiGlu;
  const int64_t f = rows(s_.F), d = rows(s_.D);
  multiply_backward(held, s_.F, s_.D, halves, s_.has_biases && !is_gated);
  if (together) held.give(f + (ends.owns_dy ? d : 0));
  if (is_gated && s_.on_device) {
    held.take(2 * f);  // gradients of the gate and of up
    held.give(3 * f);  // of their product; gate and up
    multiply_backward(held, s_.D, s_.F, halves, false);
    if (together) held.give(f);
    multiply_backward(held, s_.D, s_.F, halves, false);
    if (together) held.give(f + (ends.owns_input ? d : 0));
    held.take(d);  // the sum of both
    held.give(2 * d);
    return;
  }
  if (is_gated) {
    held.take(2 * f);  // gradients of up and of the gate's silu
    held.give(3 * f);  // of their product; up and silu
    multiply_backward(held, s_.D, s_.F, halves, false);
    if (together) held.give(f);
    held.take(f);  // of the gate
    held.give(2 * f);
    multiply_backward(held, s_.D, s_.F, halves, false);
    if (together) held.give(f + (ends.owns_input ? d : 0));
    held.take(d);  // the sum of both
    held.give(2 * d);
    return;
  }
  held.take(f);
  held.give(s_.feed == Feed::kRelu ? f : 2 * f);
  multiply_backward(held, s_.D, s_.F, halves, s_.has_biases);
  if (together) held.give(f + (ends.owns_input ? d : 0));
}

void LayerMemory::norm_backward(HeldBytes& held, int64_t rows) const {
  held.take(rows * s_.D * s_.element + norm_weights());
  const int64_t parts =
      s_.on_device ? std::clamp<int64_t>(rows / kRowsOfPart, 1, kDeviceSummedParts) : std::min(kSummedParts, rows);
  held.take_briefly(s_.is_layernorm ? 2 * s_.threads * s_.D * s_.element : 4 * s_.D * (parts + 1));
}

void LayerMemory::forward(HeldBytes& held) const {
  const int64_t d = rows(s_.D), numbers = norm_numbers(s_.R);
  if (s_.norms_after) return forward_with_norms_after(held);
  held.take(d + numbers);
  attention_forward(held);
  rest_forward(held);
}

void LayerMemory::rest_forward(HeldBytes& held) const {
  const int64_t d = rows(s_.D);
  if (s_.dropout) drop(held, s_.R * s_.D, s_.element);
  held.take(d);  // the sum
  if (s_.dropout) held.give(d);
  held.take(d + norm_numbers(s_.R));
  feed_forward(held);
  if (s_.dropout) drop(held, s_.R * s_.D, s_.element);
  held.take(d);
  if (s_.dropout) held.give(d);
  held.give(2 * d);  // the outputs of both parts
}

void LayerMemory::rest_backward(HeldBytes& held, Halves halves) const {
  const int64_t d = rows(s_.D);
  if (s_.dropout) drop(held, s_.R * s_.D, s_.element);
  feed_backward(held, halves, {.owns_dy = s_.dropout, .owns_input = true});
  norm_backward(held, s_.R);
  held.give(2 * d + norm_numbers(s_.R));  // the gradient of the norm's output, and its input
  held.take(d);                           // the sum with the output's gradient, which somebody else holds
}

void LayerMemory::transform_forward(HeldBytes& held) const {
  held.take(rows(s_.D));  // the rows
  multiply(held, s_.D, s_.D);
  held.take(rows(s_.D));  // gelu
  held.take(rows(s_.D) + norm_numbers(s_.R));
}

void LayerMemory::transform_backward(HeldBytes& held, Halves halves) const {
  const int64_t d = rows(s_.D);
  norm_backward(held, s_.R);
  held.give(d + norm_numbers(s_.R));
  held.take(d);      // of what gelu has read
  held.give(2 * d);  // that, and the gradient of what gelu gave
  multiply_backward(held, s_.D, s_.D, halves, true);
  if (halves == Halves::kTogether) held.give(2 * d);
}

// Each part, its sum with what it has read, and the norm of that.
void LayerMemory::forward_with_norms_after(HeldBytes& held) const {
  const int64_t d = rows(s_.D);
  for (const bool is_feed : {false, true}) {
    is_feed ? feed_forward(held) : attention_forward(held);
    if (s_.dropout) drop(held, s_.R * s_.D, s_.element);
    held.take(d);  // the sum
    if (s_.dropout) held.give(d);
    held.take(d + norm_numbers(s_.R));
  }
  held.give(2 * d);  // the outputs of both parts
}

void LayerMemory::backward_with_norms_after(HeldBytes& held, Halves halves) const {
  const int64_t d = rows(s_.D);
  for (const bool is_feed : {true, false}) {
    norm_backward(held, s_.R);
    held.give(d + norm_numbers(s_.R));  // the sum
    if (!is_feed) held.give(d);         // the gradient of the first norm's output
    if (s_.dropout) drop(held, s_.R * s_.D, s_.element);
    const PartEnds ends = {.owns_dy = s_.dropout, .owns_input = true};
    is_feed ? feed_backward(held, halves, ends) : attention_backward(held, halves, ends);
    // The gradients of what the part has read are added up in place, unless the second half keeps one of them.
    if (halves == Halves::kApart && !s_.dropout)
      held.take_briefly(d);
    else
      held.give(d);
  }
}

void LayerMemory::backward(HeldBytes& held, Halves halves) const {
  const int64_t d = rows(s_.D), numbers = norm_numbers(s_.R);
  if (s_.norms_after) return backward_with_norms_after(held, halves);
  rest_backward(held, halves);
  held.give(d);
  if (s_.dropout) drop(held, s_.R * s_.D, s_.element);
  attention_backward(held, halves, {.owns_dy = s_.dropout, .owns_input = true});
  norm_backward(held, s_.R);
  held.give(d + numbers);
  if (halves == Halves::kApart && !s_.dropout) held.take(d);  // the second half keeps the other part of the sum
  held.give(d);
}

void LayerMemory::product_of_heads_forward(HeldBytes& held, int64_t exchanged) const {
  multiply(held, s_.D, s_.A + 2 * s_.K);
  if (s_.has_key_product) held.take_briefly(rows(s_.A + 2 * s_.K));  // both products in one tensor
  norm_heads(held);
  rotate(held);
  if (s_.in_ring) return;
  held.take(exchanged * s_.element);
  if (exchanged > s_.R * (s_.A + 2 * s_.K)) held.take_briefly((exchanged - s_.R * s_.A) * s_.element);  // copied keys
  held.give(rows(s_.A + 2 * s_.K));
}

void LayerMemory::product_of_heads_backward(HeldBytes& held, Halves halves, const PartEnds& ends) const {
  const bool together = halves == Halves::kTogether;
  const int64_t qkv = rows(s_.A + 2 * s_.K);
  if (!s_.in_ring) {
    held.take(qkv + rows(2 * s_.K));  // in one tensor; keys and values are summed over their copies before
    held.give(rows(2 * s_.K));
  }
  rotate(held);
  norm_heads_backward(held);
  multiply_backward(held, s_.D, s_.A + 2 * s_.K, halves, s_.has_qkv_bias);
  if (s_.has_key_product) held.take_briefly(2 * rows(s_.D));  // of the keys' product, and the sum of both
  if (together) held.give((s_.in_ring ? 0 : qkv) + (ends.owns_input ? rows(s_.D) : 0));
}

void LayerMemory::output_of_heads_forward(HeldBytes& held) const {
  if (!s_.in_ring) held.take(rows(s_.A));  // heads come together
  multiply(held, s_.A, s_.D);
}

void LayerMemory::output_of_heads_backward(HeldBytes& held, Halves halves, bool has_rest) const {
  if (has_rest && s_.dropout) drop(held, s_.R * s_.D, s_.element);
  multiply_backward(held, s_.A, s_.D, halves, has_rest && s_.has_biases);
  if (halves == Halves::kTogether) held.give((s_.in_ring ? 0 : rows(s_.A)) + (has_rest && s_.dropout ? rows(s_.D) : 0));
  if (!s_.in_ring) held.take_briefly(rows(s_.A));  // by ranks
}

// Takes the tokens of all ranks in one tensor, what attention keeps, and its output by ranks.
void LayerMemory::heads_forward(HeldBytes& held, int64_t padded_rows) const {
  const int64_t width = s_.A + 2 * s_.K, used = in_attention(width), a = in_attention(s_.A);
  const int64_t joined = padded_rows * width * s_.element, output = padded_rows * s_.A * s_.element;
  held.take(joined);
  if (s_.in_fp32) {
    held.take(used);
    held.give(joined);
  }
  if (s_.is_math) {
    math_attention(held, !s_.recomputes_attention);
    if (!s_.recomputes_attention) held.give(s_.in_fp32 ? used : joined);
    held.take(a);  // heads come together
    held.give(a);
  } else {
    held.take(a + s_.R * s_.heads * 4);
    held.take_briefly(flash_buffer(false) + of_document(s_.A));
  }
  if (s_.in_fp32) held.take(rows(s_.A));
  held.take(2 * output);  // padded, then by ranks
  held.give(output + (s_.in_fp32 ? rows(s_.A) : 0) + (s_.is_math ? a : 0));
}

void LayerMemory::heads_backward(HeldBytes& held, int64_t padded_rows) const {
  const int64_t width = s_.A + 2 * s_.K, a = in_attention(s_.A);
  const int64_t joined = padded_rows * width * s_.element, output = padded_rows * s_.A * s_.element;
  held.take(output);  // the output's gradient, of all tokens
  if (s_.in_fp32) {
    held.take(a);
    held.give(output);
  }
  if (s_.is_math)
    math_backward(held);
  else
    flash_backward(held);
  if (s_.in_fp32) {
    held.take(rows(width));
    held.give(in_attention(width));
  }
  held.take(rows(width));  // in one tensor, after which the parts go
  held.give(rows(width));
  held.take(joined);  // with padding
  held.give(rows(width));
  held.take(joined);  // by ranks
  held.give(joined);
}

// A packed sequence is attended to document by document, each as long as a sequence at most.
LayerMemory LayerMemory::of_pairs(int64_t queries, int64_t keys) const {
  LayerSizes sizes = s_;
  if (s_.is_packed) sizes.B = 1;
  sizes.T = queries, sizes.S = keys, sizes.R = sizes.B * queries;
  return LayerMemory(sizes);
}

int64_t LayerMemory::ring_element() const { return s_.in_fp32 || s_.dropout ? 4 : s_.element; }

int64_t LayerMemory::ring_queries() const { return s_.R * s_.A * ring_element(); }
int64_t LayerMemory::ring_keys() const { return s_.B * s_.S * s_.K * ring_element(); }

// Takes the output and the sums of some pairs. With dropout, their scores are matrices.
void LayerMemory::ring_part_forward(HeldBytes& held) const {
  const int64_t a = ring_queries(), k = ring_keys(), sums = s_.R * s_.heads * 4;
  if (s_.dropout) {
    const int64_t matrix = 4 * s_.B * s_.heads * s_.T * s_.S, mask = 4 * s_.T * s_.S;
    const int64_t copied_a = copies_queries() ? a : 0, copied_k = s_.B > 1 && s_.key_heads > 1 ? k : 0;
    held.take_briefly(kScalar + std::max({matrix + a + copied_a + copied_k, 2 * matrix + mask, 3 * matrix + sums,
                                          2 * matrix + a + copied_k + sums}));
  }
  held.take(a + sums);
  if (!s_.dropout) held.take_briefly(flash_buffer(false));
}

// Takes the gradients of the queries and keys of some pairs.
void LayerMemory::ring_part_backward(HeldBytes& held, bool queries_are_cut) const {
  const int64_t a = ring_queries(), k = ring_keys();
  if (s_.dropout) {
    const int64_t matrix = 4 * s_.B * s_.heads * s_.T * s_.S, mask = 4 * s_.T * s_.S, sums = s_.R * s_.heads * 4;
    const int64_t copied_a = copies_queries() ? a : 0, copied_k = s_.B > 1 && s_.key_heads > 1 ? k : 0;
    held.take_briefly(kScalar + std::max({matrix + a + copied_a + copied_k, 2 * matrix + mask,
                                          2 * matrix + k + std::max(a, copied_a + copied_k), 5 * matrix + k + sums,
                                          3 * matrix + 2 * k + sums + std::max(copied_a, a + copied_k)}));
  }
  held.take(a + 2 * k);
  const int64_t cut = s_.B > 1 && queries_are_cut ? a : 0;  // dy is copied, and for a device the output
  if (!s_.dropout) held.take_briefly(flash_buffer(true) + (s_.on_device ? 2 : 1) * cut);
  if (ring_element() != 4) held.take_briefly(4 * std::max(s_.R * s_.A, s_.B * s_.S * s_.K));  // they are added in fp32
}

// Adds a part to what its rows have so far, in fp32.
void LayerMemory::ring_merge(HeldBytes& held) const {
  const int64_t merged = 4 * s_.R * s_.A;
  held.take_briefly(3 * s_.R * s_.heads * 4 + (ring_element() == 4 ? 1 : 2) * merged);
}

// In the first step a rank's queries meet its own keys, in a later one all queries half of the keys, or half of them
// all keys. While a step computes, the keys of the next are on their way. The output is merged in fp32.
void LayerMemory::ring_forward(HeldBytes& held, int64_t keys, int64_t ranks) const {
  const int64_t merged = 4 * s_.R * s_.A, sums = s_.R * s_.heads * 4, passing = ranks > 1 ? keys * s_.element : 0;
  const bool converts = ring_element() != s_.element;
  const auto step = [&](int64_t of_queries, int64_t of_keys, bool merges) {
    const LayerMemory pairs = of_pairs(of_queries, of_keys);
    HeldBytes part = held;
    pairs.ring_part_forward(part);
    if (merges)
      pairs.ring_merge(part);
    else if (ring_element() != 4)
      part.take_briefly(merged);
    held.take_briefly(part.most() - held.held());
  };
  held.take(keys * s_.element + (converts ? 4 * (s_.R * s_.A + keys) : 0));
  if (s_.is_packed) held.take(merged + sums);
  held.take(passing);
  step(s_.T, s_.T, s_.is_packed);
  if (!s_.is_packed) held.take(merged + sums);
  if (ranks == 2) held.give(passing);
  if (ranks > 1) step(s_.T, (s_.T + 1) / 2, true);
  if (ranks > 2) held.give(passing);
  held.take_briefly(rows(s_.A));
}

// The sums of the gradients of keys go behind them: those of a step are added to those that have come, while those of
// the step before are on their way.
void LayerMemory::ring_backward(HeldBytes& held, int64_t keys, int64_t ranks) const {
  const int64_t passing = ranks > 1 ? keys * s_.element : 0, sums = 4 * keys;
  const bool converts = ring_element() != s_.element;
  held.take(4 * s_.R * s_.A + sums);  // gradients, in fp32
  held.take(keys * s_.element + (converts ? 4 * (3 * s_.R * s_.A + keys) : 0));
  held.take(passing + sums);
  const auto step = [&](int64_t of_queries, int64_t of_keys) {
    HeldBytes part = held;
    of_pairs(of_queries, of_keys).ring_part_backward(part, of_queries < s_.T);
    held.take_briefly(part.most() - held.held());
  };
  step(s_.T, s_.T);
  const int64_t half = (s_.T + 1) / 2;
  if (ranks > 1) {
    held.take(2 * sums);
    if (ranks == 2) held.give(passing);
    step(s_.T, half);
    step(half, s_.T);
    held.give(2 * sums);
    if (ranks == 2) held.take(passing);
  }
  held.give(passing + sums);
  held.take_briefly(s_.element == 4 ? 0 : sums + rows(s_.A) + keys * s_.element);
  held.give(keys * s_.element + (converts ? 4 * (3 * s_.R * s_.A + keys) : 0));
}

int64_t LayerMemory::second_half_of_attention() const {
  return std::max(gradient_scratch(s_.R, s_.D, s_.A + 2 * s_.K, s_.has_qkv_bias),
                  gradient_scratch(s_.R, s_.A, s_.D, s_.has_biases));
}

int64_t LayerMemory::second_half_of_feed() const {
  if (s_.mixture.experts > 0) return std::max(second_half_of_experts(), second_half_of_route());
  return std::max(gradient_scratch(s_.R, s_.D, s_.F, s_.has_biases), gradient_scratch(s_.R, s_.F, s_.D, s_.has_biases));
}

int64_t LayerMemory::second_half_of_route() const {
  const int64_t router = 4 * (s_.mixture.experts + (s_.element == 4 ? 0 : s_.R)) * s_.D;
  return std::max(router, s_.mixture.shared_ffn > 0 ? shared_experts().second_half_of_feed() : 0);
}

int64_t LayerMemory::second_half_of_experts() const { return expert_rows() * s_.D * s_.element + gradient_of_expert(); }

}  // namespace herd::spec
