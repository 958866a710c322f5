#include "herd/data/id_folder.h"

#include <algorithm>

#include "herd/base/error.h"
#include "herd/data/token_folder_writer.h"

namespace herd {
namespace {

constexpr int64_t kLongestRunOfIds = 32 << 10;  // ids that go to one split together
constexpr int64_t kValidationRuns = 8;          // runs of ids that validation gets of each file at least

void check_options(const IdFolderOptions& options) {
  if (options.files.empty()) {
    throw Error(Code::kBadConfig, "no files of ids named\n  fix: herd tokenize --ids FILES... --vocab N --out DIR");
  }
  if (options.vocabulary_size < 1) {
    throw Error(Code::kBadConfig,
                "--ids needs the number of tokens that the ids are out of\n  fix: --vocab N, as many as the tokenizer "
                "that wrote them has: 50257 of GPT-2");
  }
  if (options.end_of_text && (*options.end_of_text < 0 || *options.end_of_text >= options.vocabulary_size)) {
    throw Error(Code::kBadConfig, "--end-of-text " + std::to_string(*options.end_of_text) + " is not in [0, " +
                                      std::to_string(options.vocabulary_size) +
                                      "), which --vocab states\n  fix: the id "
                                      "that the tokenizer ends a text with: 50256 of GPT-2");
  }
  TokenFolderWriter::check_can_write(options.out, options.validation);
}

}  // namespace

TokenFolder write_id_folder(const IdFolderOptions& options) {
  check_options(options);
  int64_t done = 0, total = 0;
  std::error_code not_there;  // read_id_file() reports a missing file
  for (const auto& file : options.files) {
    if (std::filesystem::is_regular_file(file, not_there))
      total += static_cast<int64_t>(std::filesystem::file_size(file));
  }
  const auto max_ids_per_visit = [&](int64_t count) {
    const auto share = static_cast<int64_t>(options.validation * static_cast<double>(count) / kValidationRuns);
    return options.validation > 0 ? std::clamp<int64_t>(share, 1, kLongestRunOfIds) : kLongestRunOfIds;
  };
  TokenFolderWriter writer(options.out, options.vocabulary_size, options.validation);
  for (const auto& file : options.files) {
    read_id_file({.path = file,
                  .raw = options.raw_type,
                  .vocabulary = options.vocabulary_size,
                  .max_ids_per_visit = max_ids_per_visit},
                 [&](std::span<const int> ids, bool ends_document) {
                   const Split split = writer.append(ids, static_cast<double>(ids.size()));
                   if (!ends_document) return;
                   if (options.end_of_text && ids.back() != *options.end_of_text) {
                     const int end[] = {static_cast<int>(*options.end_of_text)};
                     writer.append_to(split, end);
                   }
                   writer.end_document();
                 });
    done += static_cast<int64_t>(std::filesystem::file_size(file));
    if (options.progress) options.progress(done, total);
  }
  if (writer.tokens() == 0) {
    throw Error(Code::kBadConfig, "the files hold no ids\n  fix: files with token ids");
  }
  return writer.commit({.files = options.files, .end_of_text = options.end_of_text});
}

}  // namespace herd
