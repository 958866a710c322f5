#include "herd/nn/recorded_routing.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "herd/base/error.h"
#include "herd/nn/router.h"

namespace herd::nn {
namespace {

constexpr int32_t kUnknown = -1;

[[noreturn]] void refuse(const RoutedSample& at, const std::string& rule, const std::string& fix) {
  throw Error(Code::kBadConfig, "recorded routing: step " + std::to_string(at.step + 1) + ", layer " +
                                    std::to_string(at.layer) + ", sample " + std::to_string(at.sample) + ": " + rule +
                                    "\n  fix: " + fix);
}

// Tells whether these are experts of a model, each once.
bool can_be_chosen(std::span<const int32_t> experts, int64_t E) {
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] < 0 || experts[i] >= E) return false;
    if (std::find(experts.begin(), experts.begin() + static_cast<int64_t>(i), experts[i]) !=
        experts.begin() + static_cast<int64_t>(i))
      return false;
  }
  return true;
}

std::string text(std::span<const int32_t> experts) {
  std::string out;
  for (const int32_t expert : experts) out += (out.empty() ? "" : ", ") + std::to_string(expert);
  return out;
}

}  // namespace

void RecordedRouting::add(int64_t step, int layer, std::span<const TokenRow> rows, const at::Tensor& experts_Nk) {
  const int64_t k = experts_Nk.size(1);
  const int64_t* chosen = experts_Nk.const_data_ptr<int64_t>();
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].sample < 0) continue;
    SampleChoices& of_sample = samples_[{step, layer, rows[row].sample}];
    of_sample.top_k = k;
    const auto begin = static_cast<size_t>(rows[row].token * k);
    if (of_sample.experts.size() < begin + static_cast<size_t>(k))
      of_sample.experts.resize(begin + static_cast<size_t>(k), kUnknown);
    for (size_t j = 0; j < static_cast<size_t>(k); ++j)
      of_sample.experts[begin + j] = static_cast<int32_t>(chosen_expert(chosen[row * static_cast<size_t>(k) + j]));
  }
}

void RecordedRouting::add(const RoutedSample& at, const SampleChoices& choices) {
  SampleChoices& known = samples_.try_emplace(at, SampleChoices{choices.top_k}).first->second;
  if (known.top_k != choices.top_k)
    refuse(at, "top_k is " + std::to_string(known.top_k) + " and " + std::to_string(choices.top_k),
           "files of one run, in a folder of their own");
  known.experts.resize(std::max(known.experts.size(), choices.experts.size()), kUnknown);
  for (size_t i = 0; i < choices.experts.size(); ++i) {
    if (choices.experts[i] != kUnknown) known.experts[i] = choices.experts[i];
  }
}

at::Tensor RecordedRouting::choices(int64_t step, int layer, std::span<const TokenRow> rows, int64_t k,
                                    int64_t E) const {
  const at::Tensor out = at::empty({std::ssize(rows), k}, at::kLong);
  int64_t* to = out.mutable_data_ptr<int64_t>();
  RoutedSample at{step, layer, -1};
  const SampleChoices* of_sample = nullptr;
  for (size_t row = 0; row < rows.size(); ++row, to += k) {
    if (rows[row].sample < 0) {
      std::iota(to, to + k, 0);
      continue;
    }
    if (of_sample == nullptr || at.sample != rows[row].sample) {
      at.sample = rows[row].sample;
      const auto found = samples_.find(at);
      if (found == samples_.end()) refuse(at, "it is not there", "a record of the same steps, layers and batch");
      of_sample = &found->second;
      if (of_sample->top_k != k)
        refuse(at, "its tokens have " + std::to_string(of_sample->top_k) + " experts", "model.top_k as recorded");
    }
    const auto begin = static_cast<size_t>(rows[row].token * k);
    if (begin + static_cast<size_t>(k) > of_sample->experts.size() || of_sample->experts[begin] == kUnknown)
      refuse(at, "token " + std::to_string(rows[row].token) + " is not there", "the files of all ranks, in one folder");
    const auto experts = std::span(of_sample->experts).subspan(begin, static_cast<size_t>(k));
    if (!can_be_chosen(experts, E))
      refuse(at,
             "token " + std::to_string(rows[row].token) + " has experts " + text(experts) + ", of " + std::to_string(E),
             "experts from 0 on, each once, of a model with as many");
    std::ranges::copy(experts, to);
  }
  return out;
}

}  // namespace herd::nn
