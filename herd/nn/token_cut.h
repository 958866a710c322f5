// Says which tokens of each sequence a rank has, where ranks share them. Each of `parts` ranks has as many. A
// contiguous cut gives rank `place` one range. A zigzag gives it ranges `place` and `2 parts - 1 - place` of 2 parts
// ranges, so that under a causal mask all ranks have as much to do. Behind the last token of the sequence is padding:
// it looks at tokens before it, and nothing looks at it. Threads: plain data, pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace herd::nn {

// Names `count` tokens of a sequence, from `begin` on.
struct TokenSpan {
  int64_t begin = 0, count = 0;
};

struct TokenCut {
  int64_t tokens = 0;  // of the whole sequence
  int place = 0, parts = 1;
  bool zigzag = false;
  int64_t size() const;                  // returns the tokens of each rank, padding included
  std::vector<TokenSpan> spans() const;  // returns this rank's tokens, in the order in which it has them
};

// Names a token of a sample; one below 0 is padding.
struct TokenRow {
  int64_t sample = -1, token = -1;
};

// Returns which tokens `rows` rows of a rank are: of each sample it has the tokens of `cut`, and the first row is its
// row `first_row`. Rows behind the last sample, those of a sample below 0, and those behind the last token are padding.
std::vector<TokenRow> token_rows(int64_t rows, const std::vector<int64_t>& samples, const TokenCut& cut,
                                 int64_t first_row = 0);

// Returns this rank's columns of a tensor (B, tokens), and `padding` for those behind the last one. It copies.
at::Tensor own_columns(const at::Tensor& whole_BT, const TokenCut& cut, int64_t padding);

}  // namespace herd::nn
