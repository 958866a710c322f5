// Holds the model table of a chain of a user's own blocks (herd/chain), which comes from a trace and not from the keys
// of [model]. Each block was run at two sizes of micro-batches; all else follows from these.
//   Sizes of tensors are exact, since each is a multiple of powers of the samples and the tokens (Extent). Bytes that a
//   pass keeps or needs, and its FLOP, are on the line through both traces, for samples of the most tokens.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "herd/spec/model_table.h"

namespace herd::spec {

inline constexpr char kChainFile[] = "chain.json";  // holds it in a run's folder, beside config.toml

class ChainTable {
 public:
  // Both tables are of samples of `most_tokens` tokens; 1 where the data does not count tokens.
  // REQUIRES tables of the same chain, traced with 1 <= small_samples < large_samples.
  ChainTable(int64_t small_samples, ModelTable small, int64_t large_samples, ModelTable large, int64_t most_tokens = 1);

  ModelTable at(int64_t micro_batch) const;  // returns the table of micro-batches of so many samples
  const ModelTable& traced() const { return large_; }
  // Returns a text that other chains, and this one on samples of other sizes, do not share: the tensors of a sample of
  // the most tokens, and the parameters of each block, such as "points 3, labels 1: left 16, mask 0, loss 21".
  std::string identity() const;

  // The text is JSON, and parse() is the inverse of text(). Throws kCorruptFile naming `source` for any other text.
  std::string text() const;
  static ChainTable parse(std::string_view text, const std::string& source);

 private:
  int64_t small_samples_, large_samples_, most_tokens_;
  ModelTable small_, large_;
};

}  // namespace herd::spec
