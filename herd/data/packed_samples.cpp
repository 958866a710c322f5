#include "herd/data/packed_samples.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/data/document_file.h"
#include "herd/data/document_packing.h"
#include "herd/data/sample_order.h"
#include "herd/data/token_file.h"

namespace herd {
namespace {

// Ends a row with padding from `begin` on, which is a document of its own.
void pad(SampleRow& row, int64_t begin) {
  const auto at = static_cast<size_t>(begin);
  if (at < row.inputs_T.size()) row.document_begins.push_back(begin);
  std::fill(row.inputs_T.begin() + begin, row.inputs_T.end(), 0);
  std::fill(row.targets_T.begin() + begin, row.targets_T.end(), kIgnoredTarget);
}

class FileDocuments final : public SampleSource {
 public:
  FileDocuments(const std::filesystem::path& folder, Split split, int64_t context, uint64_t seed)
      : file_(split_path(folder, split)),
        context_(context),
        packing_(read_document_ends(file_), context),
        order_(at_least_one(packing_.sequences(), split), seed_of(split, seed)) {}
  bool packs_documents() const override { return true; }
  int64_t context() const override { return context_; }
  int64_t vocabulary() const override { return file_.vocabulary(); }
  int64_t samples_per_epoch() const override { return order_.windows(); }
  int64_t targets_of(int64_t sample) const override {
    int64_t count = 0;
    for (const DocumentPart& part : packing_.parts_of(order_.window_of(sample))) count += part.tokens;
    return count;
  }
  void read_row(int64_t sample, SampleRow& row) const override {
    row.document_begins.clear();
    int64_t at = 0;
    std::vector<int64_t> ids;
    for (const DocumentPart& part : packing_.parts_of(order_.window_of(sample))) {
      ids.resize(static_cast<size_t>(part.tokens) + 1);
      file_.read(part.begin, ids);
      std::copy(ids.begin(), ids.end() - 1, row.inputs_T.begin() + at);
      std::copy(ids.begin() + 1, ids.end(), row.targets_T.begin() + at);
      row.document_begins.push_back(at);
      at += part.tokens;
    }
    pad(row, at);
  }
  std::string summary() const override {
    char share[16];
    std::snprintf(
        share, sizeof share, "%.1f",
        100.0 * static_cast<double>(packing_.tokens()) / static_cast<double>(packing_.sequences() * context_));
    std::string text = std::to_string(packing_.documents()) + " documents packed into " +
                       std::to_string(packing_.sequences()) + " sequences of " + std::to_string(context_) +
                       " tokens, of which " + share + " % are no padding";
    if (packing_.cut_documents() > 0)
      text += "; " + std::to_string(packing_.cut_documents()) + " documents are longer and were cut";
    return text;
  }

 private:
  int64_t at_least_one(int64_t sequences, Split split) const {
    if (sequences > 0) return sequences;
    throw Error(Code::kBadConfig, file_.path().string() + " holds no document of two ids, and one alone has no target" +
                                      fix_of_few_tokens(split, "more text, or leave data.packing out"));
  }

  TokenFile file_;
  int64_t context_;
  DocumentPacking packing_;
  SampleOrder order_;
};

class RandomDocuments final : public SampleSource {
 public:
  RandomDocuments(int64_t vocabulary, int64_t context, uint64_t seed)
      : ids_(random_samples(vocabulary, context, seed)), lengths_(context, seed) {}
  bool packs_documents() const override { return true; }
  int64_t context() const override { return ids_->context(); }
  int64_t vocabulary() const override { return ids_->vocabulary(); }
  int64_t samples_per_epoch() const override { return ids_->samples_per_epoch(); }
  int64_t targets_of(int64_t sample) const override {
    int64_t count = 0;
    for_each_document(sample, [&](int64_t, int64_t tokens) { count += tokens; });
    return count;
  }
  void read_row(int64_t sample, SampleRow& row) const override {
    ids_->read_row(sample, row);
    row.document_begins.clear();
    int64_t end = 0;
    for_each_document(sample, [&](int64_t begin, int64_t tokens) {
      row.document_begins.push_back(begin);
      end = begin + tokens;
    });
    pad(row, end);
  }
  std::string summary() const override { return "made-up documents of 1 to " + std::to_string(context()) + " tokens"; }

 private:
  // Documents follow each other until one does not fit.
  template <class Visit>
  void for_each_document(int64_t sample, const Visit& visit) const {
    const int64_t first = sample % (int64_t{1} << 31) * context();
    for (int64_t begin = 0, i = 0; begin < context(); ++i) {
      const int64_t tokens = 1 + lengths_.window_of(first + i);
      if (begin + tokens > context()) return;
      visit(begin, tokens);
      begin += tokens;
    }
  }

  std::unique_ptr<WindowSource> ids_;
  SampleOrder lengths_;
};

}  // namespace

std::unique_ptr<SampleSource> open_documents(const std::filesystem::path& folder, Split split, int64_t context,
                                             uint64_t seed) {
  HERD_CHECK_GE(context, 1);
  return std::make_unique<FileDocuments>(folder, split, context, seed);
}

std::unique_ptr<SampleSource> random_documents(int64_t vocabulary, int64_t context, uint64_t seed) {
  return std::make_unique<RandomDocuments>(vocabulary, context, seed);
}

}  // namespace herd
