// Writes the folder of tokens that training reads (token_folder.h), from pieces of ids, each of which goes whole to one
// split (SplitShares). Where documents end is written beside the tokens (document_file.h).
// Throws as AtomicFile and TokenFileWriter. Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "herd/data/sample_source.h"
#include "herd/data/token_file.h"
#include "herd/data/token_folder.h"

namespace herd {

// Gives one of each 1 / validation pieces to the validation split, long or short, so that both splits have pieces of
// all lengths. Its place among them changes from one to the next, so that data that repeat a pattern of pieces, such as
// questions and answers in turn, have all of it in both. A piece that alone would take twice the share of all pieces so
// far, itself included, goes to the training split.
class SplitShares {
 public:
  explicit SplitShares(double validation) : share_(validation) {}
  Split next(double size);  // of the piece, in any unit
  bool has_empty_split() const { return num_train_ == 0 || (num_validation_ == 0 && share_ > 0); }
  int64_t num_pieces() const { return num_train_ + num_validation_; }

 private:
  double share_;
  double size_ = 0;  // of all pieces so far
  int64_t num_train_ = 0, num_validation_ = 0;
};

class TokenFolderWriter {
 public:
  // Throws kBadConfig where `validation` is not in [0, 0.5], or the folder holds what no TokenFolderWriter wrote.
  static void check_can_write(const std::filesystem::path& out, double validation);
  // Takes the folder over, which is unfinished until commit(). REQUIRES that check_can_write() passes.
  TokenFolderWriter(std::filesystem::path out, int vocabulary, double validation);

  // Adds a piece to the split that SplitShares gives it to, and returns that split.
  Split append(std::span<const int> ids, double size);
  void append_to(Split split, std::span<const int> ids) { file(split).append(ids); }
  // Ends the document whose pieces have been added since the last call; it may have pieces in both splits.
  void end_document();

  struct Origin {
    std::vector<std::filesystem::path> files = {};
    int64_t text_bytes = 0;                   // 0 = the files hold ids, not text
    std::optional<int64_t> end_of_text = {};  // the id after each text
  };
  TokenFolder commit(const Origin& origin);                                // makes the folder one that training takes
  int64_t tokens() const { return train_.count() + validation_.count(); }  // so far

 private:
  TokenFileWriter& file(Split split) { return split == Split::kTrain ? train_ : validation_; }

  const std::filesystem::path out_;
  const int vocabulary_;
  SplitShares shares_;
  TokenFileWriter train_, validation_;
  std::vector<int64_t> train_ends_, validation_ends_;  // tokens of the split before the end of each document
};

}  // namespace herd
