#include "herd/data/token_folder.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "herd/base/error.h"
#include "herd/base/regular_file.h"
#include "herd/base/units.h"
#include "herd/data/text_encoding.h"
#include "herd/data/token_file.h"
#include "herd/data/token_folder_writer.h"
#include "herd/data/tokenizer.h"
#include "herd/storage/checksum.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/mapped_file.h"
#include "herd/storage/readable_file.h"

namespace herd {
namespace {

constexpr int64_t kLongestRun = 64 << 10;  // bytes of text that go to one split together
constexpr int64_t kRunsOfValidation = 8;   // runs that validation gets at least

int64_t count_space_marks(std::string_view text) {
  constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581
  int64_t count = 0;
  for (size_t at = text.find(kSpaceMark); at != text.npos; at = text.find(kSpaceMark, at + kSpaceMark.size())) ++count;
  return count;
}

std::vector<MappedFile> open_files(const std::vector<std::filesystem::path>& paths) {
  std::vector<MappedFile> files;
  for (const auto& path : paths) {
    if (!is_file(path)) {
      if (!std::filesystem::exists(path))
        throw Error(Code::kBadConfig, "there is no file " + path.string() + "\n  fix: name existing plain-text files");
      throw Error(Code::kBadConfig,
                  path.string() + " is no regular file, and a text is read more than once\n  fix: " +
                      (std::filesystem::is_directory(path) ? "the files in that folder"
                                                           : "a file in place of the pipe, as by zcat x.gz > x.txt"));
    }
    files.emplace_back(path);
    if (files.back().bytes().empty()) throw Error(Code::kBadConfig, path.string() + " is empty\n  fix: leave it out");
  }
  if (files.empty()) throw Error(Code::kBadConfig, "no text files named\n  fix: herd tokenize FILES... --out DIR");
  return files;
}

// Takes the same share of each file, so that all make about `limit` bytes.
std::string learning_text(const std::vector<MappedFile>& files, int64_t all_bytes, const TokenFolderOptions& options) {
  std::string text;
  for (const auto& file : files) {
    const double share = std::min(1.0, static_cast<double>(options.learn_bytes) / static_cast<double>(all_bytes));
    const auto bytes = static_cast<size_t>(std::ceil(share * static_cast<double>(file.bytes().size())));
    if (options.documents == TextDocuments::kFiles) {
      text += file.text().substr(0, whole_characters(file.text(), bytes));
      text += '\n';
      continue;
    }
    visit_documents(file.text(), options.documents, file.path().string(), [&](std::string_view document, int64_t done) {
      text += document;
      text += '\n';
      return done < static_cast<int64_t>(bytes);
    });
  }
  return text;
}

// Cuts a run of about `bytes` off the front of `text`: whole lines, and at least one.
std::string_view take_run(std::string_view& text, size_t bytes) {
  const size_t line_end = text.find('\n', std::min(bytes, text.size()) == 0 ? 0 : std::min(bytes, text.size()) - 1);
  const std::string_view run = text.substr(0, line_end == text.npos ? text.npos : line_end + 1);
  text.remove_prefix(run.size());
  return run;
}

size_t run_bytes(double validation, int64_t all_bytes) {
  const double share = validation * static_cast<double>(all_bytes) / kRunsOfValidation;
  return static_cast<size_t>(std::clamp<int64_t>(static_cast<int64_t>(share), 1, kLongestRun));
}

// Refuses a text of few pieces, before a vocabulary is learned from it.
void require_both_splits(const std::vector<MappedFile>& files, const TokenFolderOptions& options, int64_t all_bytes) {
  SplitShares shares(options.validation);
  const bool in_runs = options.documents == TextDocuments::kFiles;
  for (const auto& file : files) {
    if (in_runs) {
      for (std::string_view text = file.text(); !text.empty() && shares.has_empty_split();)
        shares.next(static_cast<double>(take_run(text, run_bytes(options.validation, all_bytes)).size()));
    } else {
      visit_documents(file.text(), options.documents, file.path().string(), [&](std::string_view document, int64_t) {
        shares.next(static_cast<double>(document.size()));
        return shares.has_empty_split();
      });
    }
    if (!shares.has_empty_split()) return;
  }
  const std::string pieces = in_runs ? "runs of whole lines" : "documents";
  throw Error(Code::kBadConfig,
              "--validation " + format_number(options.validation) + " leaves a split empty: each of the " + pieces +
                  " goes whole to one split, and there " +
                  (shares.num_pieces() == 1 ? "is 1" : "are " + std::to_string(shares.num_pieces())) + "\n  fix: " +
                  (in_runs ? "break long lines first, as by fold -s -w 500; or " : "more documents; or ") +
                  "--validation 0, which keeps all for training");
}

// Encodes files for the writer, with the end-of-text token after each document. A file that is one document goes to it
// in runs of whole lines.
class Encoder {
 public:
  Encoder(const TokenFolderOptions& options, const Tokenizer& tokenizer, int64_t all_bytes)
      : options_(options),
        tokenizer_(tokenizer),
        all_bytes_(all_bytes),
        writer_(options.out, tokenizer.vocabulary(), options.validation),
        run_bytes_(run_bytes(options.validation, all_bytes)) {}

  void add(const MappedFile& file) {
    if (options_.documents == TextDocuments::kFiles) return add_in_runs(file.text());
    const int64_t before = done_;
    visit_documents(file.text(), options_.documents, file.path().string(),
                    [&](std::string_view document, int64_t done) {
                      done_ = before + done;
                      end_document(add(document));
                      return true;
                    });
    done_ = before + static_cast<int64_t>(file.text().size());
  }

  TokenFolder finish() {
    TokenFolder folder =
        writer_.commit({.files = options_.files, .text_bytes = text_bytes_, .end_of_text = tokenizer_.end_of_text()});
    folder.space_marks = space_marks_;
    return folder;
  }

 private:
  void add_in_runs(std::string_view text) {
    Split split = Split::kTrain;
    while (!text.empty()) {
      const std::string_view run = take_run(text, run_bytes_);
      done_ += static_cast<int64_t>(run.size());
      split = add(run);
    }
    end_document(split);
  }

  Split add(std::string_view piece) {
    text_bytes_ += static_cast<int64_t>(piece.size());
    space_marks_ += count_space_marks(piece);
    const Split split = writer_.append(tokenizer_.encode(piece), static_cast<double>(piece.size()));
    if (options_.progress) options_.progress(done_, all_bytes_);
    return split;
  }

  void end_document(Split split) {
    const int end[] = {tokenizer_.end_of_text()};
    writer_.append_to(split, end);
    writer_.end_document();
  }

  const TokenFolderOptions& options_;
  const Tokenizer& tokenizer_;
  int64_t all_bytes_, done_ = 0;  // bytes of the files
  int64_t text_bytes_ = 0;        // bytes of documents so far
  int64_t space_marks_ = 0;
  TokenFolderWriter writer_;
  size_t run_bytes_;
};

}  // namespace

TokenFolder write_token_folder(const TokenFolderOptions& options) {
  const auto files = open_files(options.files);
  TokenFolderWriter::check_can_write(options.out, options.validation);
  if (options.replace_bad_bytes && options.documents == TextDocuments::kJsonl) {
    throw Error(Code::kBadConfig,
                "JSON is UTF-8, so --replace-bad-bytes has no place beside --documents jsonl\n  fix: leave out "
                "--replace-bad-bytes");
  }
  int64_t all_bytes = 0, replaced_bytes = 0;
  for (const auto& file : files) {
    if (options.replace_bad_bytes)
      replaced_bytes += count_bad_bytes(file.text());
    else
      require_utf8(file.text(), file.path().string(), "--replace-bad-bytes for U+FFFD in the place of each such byte");
    all_bytes += static_cast<int64_t>(file.bytes().size());
  }
  require_both_splits(files, options, all_bytes);
  const Tokenizer tokenizer = Tokenizer::train(learning_text(files, all_bytes, options), options.vocabulary);

  Encoder encoder(options, tokenizer, all_bytes);
  tokenizer.save(options.out / kTokenizerFile);
  for (const auto& file : files) encoder.add(file);
  TokenFolder folder = encoder.finish();
  folder.replaced_bytes = replaced_bytes;
  return folder;
}

TokenFolderFacts read_token_folder(const std::filesystem::path& folder) {
  const std::string fix = "\n  fix: herd tokenize FILES... --out " + folder.string();
  const std::optional<std::string> text = read_regular_file(folder / kMetaFile);
  if (!text) {
    throw Error(Code::kBadConfig, folder.string() + " has no meta.json: its tokens were not written to the end" + fix);
  }
  const auto meta = nlohmann::json::parse(*text, nullptr, false);
  if (!meta.is_object() || meta.value("format", nlohmann::json()) != kTokenFolderFormat ||
      meta.value("version", nlohmann::json()) != 1) {
    throw Error(Code::kCorruptFile, (folder / kMetaFile).string() + " at byte 0: it must be JSON with format \"" +
                                        kTokenFolderFormat + "\" and version 1" + fix);
  }
  TokenFolderFacts facts{.has_tokenizer = meta.value("text_bytes", int64_t{1}) > 0};
  if (const auto end = meta.find("end_of_text"); end != meta.end() && end->is_number_integer())
    facts.end_of_text = end->get<int64_t>();
  return facts;
}

std::string identify_tokenizer(const std::filesystem::path& folder) {
  const TokenFolderFacts facts = read_token_folder(folder);
  if (facts.has_tokenizer && is_file(folder / kTokenizerFile))
    return "crc32c " + format_crc32c(crc32c(ReadableFile(folder / kTokenizerFile).text()));
  return "ids below " + std::to_string(TokenFile(folder / "train.tokens").vocabulary()) + ", end of text " +
         (facts.end_of_text ? std::to_string(*facts.end_of_text) : "unknown");
}

}  // namespace herd
