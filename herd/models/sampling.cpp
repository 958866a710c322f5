#include "herd/models/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "herd/nn/philox.h"

namespace herd::models {

int64_t pick_token(const at::Tensor& logits, const GenerateOptions& options, double u) {
  const float* values = logits.const_data_ptr<float>();
  const int64_t vocabulary = options.vocabulary == 0 ? logits.numel() : std::min(options.vocabulary, logits.numel());
  if (options.temperature == 0) return std::max_element(values, values + vocabulary) - values;
  std::vector<int64_t> order(static_cast<size_t>(vocabulary));
  std::iota(order.begin(), order.end(), 0);
  const auto precedes = [&](int64_t a, int64_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; };
  const int64_t kept = options.top_k == 0 ? vocabulary : std::min(options.top_k, vocabulary);
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), precedes);
  std::vector<double> cumulative(static_cast<size_t>(kept));
  double sum = 0;
  for (size_t i = 0; i < cumulative.size(); ++i) {
    sum += std::exp((static_cast<double>(values[order[i]]) - values[order[0]]) / options.temperature);
    cumulative[i] = sum;
  }
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), u * sum) - cumulative.begin();
  return order[std::min<size_t>(static_cast<size_t>(found), cumulative.size() - 1)];
}

double uniform_for_token(uint64_t seed, uint64_t number) {
  return nn::philox({static_cast<uint32_t>(number), 0, 0, 0}, nn::philox_key(seed))[0] * 0x1p-32;
}

}  // namespace herd::models
