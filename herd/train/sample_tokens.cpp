#include "herd/train/sample_tokens.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>

#include <algorithm>

#include "herd/base/error.h"
#include "herd/nn/philox.h"
#include "herd/nn/run_block.h"

namespace herd::train {

int pick_token(const at::Tensor& logits_V, const SampleOptions& options, double u) {
  const at::Tensor logits = logits_V.to(at::kDouble);
  if (options.temperature == 0) return static_cast<int>(at::argmax(logits).item<int64_t>());
  const int64_t k = options.top_k > 0 ? std::min(options.top_k, logits.numel()) : logits.numel();
  auto [values, ids] = at::topk(logits, k);
  const at::Tensor reached = at::cumsum(at::softmax(values / options.temperature, 0), 0);
  const double* sum = reached.const_data_ptr<double>();
  const int64_t at = std::upper_bound(sum, sum + k - 1, u * sum[k - 1]) - sum;
  return static_cast<int>(ids[at].item<int64_t>());
}

std::vector<int> sample_tokens(const runtime::Chain& chain, int64_t context, std::vector<int> ids,
                               const SampleOptions& options, const std::function<void(int)>& on_token) {
  if (ids.empty()) throw Error(Code::kBadConfig, "the prompt holds no token\n  fix: give at least one word");
  if (options.temperature < 0 || options.top_k < 0)
    throw Error(Code::kBadConfig, "temperature and top-k must be >= 0, but are " + std::to_string(options.temperature) +
                                      " and " + std::to_string(options.top_k));
  const nn::PhiloxKey key = nn::philox_key(nn::mix(options.seed, nn::hash_name("sample")));
  for (int64_t i = 0; i < options.tokens; ++i) {
    const int64_t length = std::min<int64_t>(context, static_cast<int64_t>(ids.size()));
    const std::vector<int64_t> window(ids.end() - length, ids.end());
    nn::Tuple x = {at::tensor(window, at::kLong).view({1, length})};
    nn::Context where;
    for (size_t b = 0; b < chain.size(); ++b) {
      where.layer = static_cast<int>(b);
      if (b + 1 == chain.size()) x[0] = x[0].narrow(1, length - 1, 1).contiguous();  // logits of the last position only
      x = nn::run_without_graph(*chain[b], x, where);
    }
    const auto words = nn::philox({static_cast<uint32_t>(i), 0, 0, 0}, key);
    const int id = pick_token(x[0].reshape({-1}), options, words[0] / 4294967296.0);
    ids.push_back(id);
    on_token(id);
    if (id == options.end_of_text) break;
  }
  return ids;
}

}  // namespace herd::train
