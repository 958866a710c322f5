#include "herd/data/token_folder.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "herd/base/error.h"
#include "herd/data/token_file.h"
#include "herd/data/tokenizer.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/mapped_file.h"
#include "herd/storage/temporary_name.h"

namespace herd {
namespace {

constexpr char kModel[] = "tokenizer.model", kTrain[] = "train.tokens", kValidation[] = "val.tokens",
               kMeta[] = "meta.json", kFormat[] = "herd-token-folder";
constexpr int64_t kLongestRun = 64 << 10;  // bytes of text that go to one split together
constexpr int64_t kRunsOfValidation = 8;   // at least, however short the text

std::vector<MappedFile> open_files(const std::vector<std::filesystem::path>& paths) {
  std::vector<MappedFile> files;
  for (const auto& path : paths) {
    if (!is_file(path)) {
      throw Error(Code::kBadConfig,
                  "there is no text file " + path.string() + "\n  fix: name existing plain-text files");
    }
    files.emplace_back(path);
    if (files.back().bytes().empty()) throw Error(Code::kBadConfig, path.string() + " is empty\n  fix: leave it out");
  }
  if (files.empty()) throw Error(Code::kBadConfig, "no text files named\n  fix: herd tokenize FILES... --out DIR");
  return files;
}

// Throws unless the folder is absent, empty, or an earlier run's.
void require_own(const std::filesystem::path& folder) {
  if (!is_taken(folder)) return;
  if (!is_folder(folder)) {
    throw Error(Code::kBadConfig, folder.string() + " is a file, --out takes a folder\n  fix: another --out");
  }
  const std::set<std::string> own = {kModel, kTrain, kValidation, kMeta};
  for (const auto& path : entries_of(folder)) {
    const std::string name = path.filename().string();
    if (own.contains(name.substr(0, name.find(".tmp.")))) continue;
    throw Error(Code::kBadConfig, folder.string() + " holds " + name + ", which herd tokenize did not write" +
                                      "\n  fix: an --out that is new, empty, or holds tokens alone");
  }
}

std::string learning_text(const std::vector<MappedFile>& files, int64_t all_bytes, int64_t limit) {
  std::string text;
  for (const auto& file : files) {
    const double share = std::min(1.0, static_cast<double>(limit) / static_cast<double>(all_bytes));
    text += file.text().substr(0, static_cast<size_t>(std::ceil(share * static_cast<double>(file.bytes().size()))));
    text += '\n';
  }
  return text;
}

// Cuts a run of whole lines of about `bytes` off the front of `text`; at least one line.
std::string_view take_run(std::string_view& text, size_t bytes) {
  const size_t line_end = text.find('\n', std::min(bytes, text.size()) == 0 ? 0 : std::min(bytes, text.size()) - 1);
  const std::string_view run = text.substr(0, line_end == text.npos ? text.npos : line_end + 1);
  text.remove_prefix(run.size());
  return run;
}

class Encoder {
 public:
  Encoder(const TokenFolderOptions& options, const Tokenizer& tokenizer, int64_t all_bytes)
      : options_(options),
        tokenizer_(tokenizer),
        all_bytes_(all_bytes),
        train_(options.out / kTrain, tokenizer.vocabulary()),
        validation_(options.out / kValidation, tokenizer.vocabulary()) {
    const double share = options.validation * static_cast<double>(all_bytes) / kRunsOfValidation;
    run_bytes_ = static_cast<size_t>(std::clamp<int64_t>(static_cast<int64_t>(share), 1, kLongestRun));
  }

  void add(std::string_view text) {
    bool to_validation = false;
    while (!text.empty()) {
      const std::string_view run = take_run(text, run_bytes_);
      done_ += static_cast<int64_t>(run.size());
      owed_ += options_.validation * static_cast<double>(run.size());
      to_validation = owed_ >= static_cast<double>(run.size()) / 2;  // the split that is furthest behind takes the run
      if (to_validation) owed_ -= static_cast<double>(run.size());
      (to_validation ? validation_ : train_).append(tokenizer_.encode(run));
      if (options_.progress) options_.progress(done_, all_bytes_);
    }
    const int end[] = {tokenizer_.end_of_text()};
    (to_validation ? validation_ : train_).append(end);
  }

  TokenFolder finish() {
    train_.commit();
    validation_.commit();
    return {all_bytes_, train_.count(), validation_.count(), tokenizer_.vocabulary()};
  }

 private:
  const TokenFolderOptions& options_;
  const Tokenizer& tokenizer_;
  int64_t all_bytes_, done_ = 0;
  TokenFileWriter train_, validation_;
  size_t run_bytes_ = 1;
  double owed_ = 0;  // bytes that validation should have and has not
};

}  // namespace

TokenFolder write_token_folder(const TokenFolderOptions& options) {
  if (!(options.validation >= 0 && options.validation <= 0.5)) {
    throw Error(Code::kBadConfig, "--validation " + std::to_string(options.validation) + " is not in [0, 0.5]");
  }
  const auto files = open_files(options.files);
  require_own(options.out);
  int64_t all_bytes = 0;
  for (const auto& file : files) all_bytes += static_cast<int64_t>(file.bytes().size());
  const Tokenizer tokenizer =
      Tokenizer::train(learning_text(files, all_bytes, options.learn_bytes), options.vocabulary);

  make_folders(options.out);
  remove_stale_temporaries(options.out);
  FileSystem::system().remove(options.out / kMeta);
  tokenizer.save(options.out / kModel);
  Encoder encoder(options, tokenizer, all_bytes);
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const auto& file : files) {
    encoder.add(file.text());
    sources.push_back({{"path", file.path().string()}, {"bytes", file.bytes().size()}});
  }
  const TokenFolder result = encoder.finish();
  const nlohmann::ordered_json meta = {{"format", kFormat},
                                       {"version", 1},
                                       {"vocabulary", result.vocabulary},
                                       {"train_tokens", result.train_tokens},
                                       {"validation_tokens", result.validation_tokens},
                                       {"text_bytes", result.text_bytes},
                                       {"files", sources}};
  write_file_atomically(options.out / kMeta, meta.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  return result;
}

void require_complete(const std::filesystem::path& folder) {
  const std::string fix = "\n  fix: herd tokenize FILES... --out " + folder.string();
  std::ifstream in(folder / kMeta);
  if (!in) {
    throw Error(Code::kBadConfig, folder.string() + " has no meta.json: its tokens were not written to the end" + fix);
  }
  const auto meta = nlohmann::json::parse(in, nullptr, false);
  if (!meta.is_object() || meta.value("format", nlohmann::json()) != kFormat ||
      meta.value("version", nlohmann::json()) != 1) {
    throw Error(Code::kCorruptFile, (folder / kMeta).string() + " at byte 0: it must be JSON with format \"" + kFormat +
                                        "\" and version 1" + fix);
  }
}

}  // namespace herd
