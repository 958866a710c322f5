#include "herd/nn/router_state.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>

#include "herd/base/check.h"
#include "herd/nn/router.h"

namespace herd::nn {
namespace {

int64_t sum_of(const std::vector<int64_t>& load) { return std::accumulate(load.begin(), load.end(), int64_t{0}); }

}  // namespace

RouterState::RouterState(std::string name, int64_t experts, double speed)
    : name_(std::move(name)), speed_(speed), load_(static_cast<size_t>(experts) + kCountsBesideLoad) {
  if (speed <= 0) return;
  bias_.resize(static_cast<size_t>(experts));
  bias_E_ = at::from_blob(bias_.data(), {experts}, at::TensorOptions(at::kFloat));
}

void RouterState::count(const at::Tensor& experts_Nk, std::span<const TokenRow> rows,
                        std::span<const uint8_t> close_N) {
  const int64_t* chosen = experts_Nk.const_data_ptr<int64_t>();
  const size_t k = experts_Nk.dim() > 1 ? static_cast<size_t>(experts_Nk.size(1)) : 1;
  int64_t &dropped = load_[load_.size() - 2], &close = load_.back();
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].sample < 0) continue;
    for (size_t i = row * k; i < (row + 1) * k; ++i) {
      ++load_[static_cast<size_t>(chosen_expert(chosen[i]))];
      if (is_dropped(chosen[i])) ++dropped;
    }
    if (!close_N.empty()) close += close_N[row];
  }
}

std::vector<int64_t> RouterState::take_load() {
  std::vector<int64_t> load(load_.size());
  std::swap(load, load_);
  return load;
}

void RouterState::balance(const std::vector<int64_t>& load) {
  HERD_CHECK_EQ(load.size() + kCountsBesideLoad, load_.size());
  if (!bias_E_.defined()) return;
  const int64_t total = sum_of(load), experts = static_cast<int64_t>(load.size());
  for (size_t e = 0; e < load.size(); ++e) {
    const int64_t above = load[e] * experts - total;  // in whole numbers, so that ranks agree on each sign
    if (above != 0) bias_[e] -= static_cast<float>(above > 0 ? speed_ : -speed_);
  }
}

double imbalance(const std::vector<int64_t>& load) {
  const int64_t total = sum_of(load);
  if (total == 0) return 1;
  const int64_t most = *std::max_element(load.begin(), load.end());
  return static_cast<double>(most) * static_cast<double>(load.size()) / static_cast<double>(total);
}

}  // namespace herd::nn
