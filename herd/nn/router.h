// Chooses the experts of each token.   x (B, T, D), W (E, D) -> N = B*T rows of k experts and their weights
//   z = x W^T in fp32;  scores s = softmax(z) or sigmoid(z)
//   The k experts of the largest logits are chosen; of equal ones the first. The weights of their outputs are their
//   scores, divided by their sum where that is asked for. With a bias (E) those of the largest s + bias are chosen, and
//   their weights stay those of s: what has a bias moves tokens and no gradient (router_state.h).
// With a capacity, an expert takes at most that many tokens of each sequence: first choices before second ones, and
// earlier tokens first. Other choices are dropped, which add nothing to their token; the weights of its other experts
// stay as they are. A sequence is what GShard calls a group, so the same choices are dropped in any layout.
// A choice is close where less than kCloseMargin lies between the scores that decide it, those of the last expert that
// is chosen and of the next one: another layout, whose sums round differently, may choose otherwise. With a capacity
// the order of the chosen ones decides, too. With losses, each sequence of T tokens has two, both times T so that sums
// over sequences are sums over tokens:
//   balance  E sum_e f_e sum_t p_te   where f_e is the share of the sequence's k*T choices that e has, a constant, and
//            p_te = s_te / sum_e s_te: 1 for each token where experts have equal shares
//   z        sum_t (log sum_e exp(z_te))^2
//   Sums over the tokens of one sequence alone make them the same in any layout. Where ranks have parts of each
//   sequence, they tell each other their choices in one all-gather of 8k bytes a token. So an expert's capacity and its
//   share f_e are those of whole sequences, and a rank's losses are the terms of its own tokens, or their sum.
// The graph keeps x, the logits, the choices and their weights. A recomputed pass takes over the choices of the first
// (mixture.h).
// Sources: Lepikhin et al. 2020, arXiv:2006.16668 (capacity); Fedus et al. 2021, arXiv:2101.03961 (balance); Zoph et
// al. 2022, arXiv:2202.08906 (z); DeepSeek-AI 2024, arXiv:2412.19437, section 2.1.2 (sigmoid, losses of sequences,
// bias). Choices are made on the host, which a device waits for. Threads: one at a time.
#pragma once

#include <vector>

#include "herd/nn/parameter.h"

namespace herd::comm {
class Communicator;
}

namespace herd::nn {

enum class RouterKind : uint8_t { kSoftmax, kSigmoid };

constexpr float kCloseMargin = 1e-6F;

struct RouterStyle {
  RouterKind kind = RouterKind::kSoftmax;
  int64_t top_k = 1;
  bool normalize_weights = true;
  bool with_losses = false;
  double capacity_factor = 0;  // capacity over the mean load of a sequence, top_k * T / E; 0 = no limit
};

struct Routing {
  at::Tensor weights_Nk;  // fp32
  // int64; the expert with the largest logit, or score with its bias, first. A choice that is dropped is ~expert.
  at::Tensor experts_Nk;
  at::Tensor losses_B2;               // fp32, balance and z of each sequence; undefined without losses
  std::vector<uint8_t> close_N = {};  // 1 where a choice is close; empty where choices were taken over
};

// What the first pass over a micro-batch finds of whole sequences, where ranks have parts of them.
struct WholeSequences {
  at::Tensor counts_BE, losses_B2;  // of all choices, dropped or not; of a router whose losses are those of all ranks
};

// Says where the tokens of each sequence are, of which x_BTD has this rank's; without ranks it has all of them.
struct SharedSequences {
  comm::Communicator* ranks = nullptr;
  int64_t sequences = 0, tokens = 0;       // of the micro-batch; of each sequence
  std::vector<at::Tensor> places_PN = {};  // by rank: the place of each row among all tokens, or -1 for padding
  // sums_losses: losses are those of several ranks, which each of them gives. Those of each of `parts` parts of the
  // tokens are summed by themselves; this rank has tokens of part `place`.
  bool sums_losses = false;
  int parts = 1, place = 0;
  WholeSequences* whole = nullptr;
};

inline bool is_dropped(int64_t choice) { return choice < 0; }
inline int64_t chosen_expert(int64_t choice) { return is_dropped(choice) ? ~choice : choice; }

// Drops the choices beyond `capacity` of an expert in each of B sequences.
void drop_beyond(int64_t capacity, const at::Tensor& experts_Nk, int64_t B, int64_t E);

// bias_E is fp32; undefined = none. With `chosen_Nk`, the choices of an earlier pass over the same rows, it chooses
// none and tells nobody. `forced_Nk` are choices of another run (recorded_routing.h), none of them dropped, which take
// the place of its own. Collective over the ranks of `sequences` where a capacity or losses need all tokens.
Routing route(const RouterStyle& style, const at::Tensor& x_BTD, Parameter& weight_ED, const at::Tensor& bias_E = {},
              const at::Tensor& chosen_Nk = {}, const SharedSequences& sequences = {},
              const at::Tensor& forced_Nk = {});

// Holds the rows whose choices are close: in all of them, or in the last one alone where their order does not matter.
struct CloseRows {
  bool of_all = false;
  std::vector<uint8_t> close_N = {};
};

// Returns the columns of the k largest numbers of each row, the largest first; of equal ones the first. scores are fp32
// and contiguous, and so is a bias, which is added to each row where it is defined. It fills `close` where there is
// one.
at::Tensor largest_of_rows(const at::Tensor& scores_NE, int64_t k, const at::Tensor& bias_E = {},
                           CloseRows* close = nullptr);

// Returns how many of the chosen experts each is, dropped or not: fp32 (B, E), for B equal parts of the rows.
at::Tensor count_choices(const at::Tensor& experts_Nk, int64_t B, int64_t E);

}  // namespace herd::nn
