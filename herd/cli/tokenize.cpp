#include "herd/cli/tokenize.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/cli/progress_line.h"
#include "herd/data/id_folder.h"

namespace herd::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kTokenizeHelp[] =
    R"help(Plain text files (UTF-8) -> a vocabulary that is learned from them, and their tokens:
  herd tokenize FILES... --vocab 4096 --out data/mine
  herd tokenize FILES... --documents blank-lines --out data/mine    documents between blank lines; default: files
  herd tokenize FILES.jsonl... --documents jsonl --out data/mine    {"text": ".."} on a line: a document
Token ids that another tokenizer made -> the same folder without tokenizer.model:
  herd tokenize --ids ids.npy --vocab 50257 --out data/mine       one dimension of integers, numpy.save
  herd tokenize --ids docs.jsonl --vocab 50257 --end-of-text 50256 --out data/mine    [464, 2068] on a line: a document
  herd tokenize --ids train.bin --dtype uint16 --vocab 50257 --out data/mine          raw integers, little-endian)help";

constexpr int kDefaultVocabulary = 4096;

TokenFolder write_folder(const TokenizeOptions& options, const std::function<void(int64_t, int64_t)>& progress) {
  if (options.ids) {
    std::optional<IdType> raw;
    if (!options.dtype.empty()) raw = parse_id_type(options.dtype);
    return write_id_folder({.files = options.files,
                            .out = options.out,
                            .vocabulary_size = options.vocabulary,
                            .raw_type = raw,
                            .end_of_text = options.end_of_text,
                            .validation = options.validation,
                            .progress = progress});
  }
  if (!options.dtype.empty() || options.end_of_text) {
    throw Error(Code::kBadConfig,
                "--dtype and --end-of-text are of --ids: text files have neither\n  fix: herd tokenize --ids FILES...");
  }
  const TextDocuments documents = parse_text_documents(options.documents);
  return write_token_folder({.files = options.files,
                             .out = options.out,
                             .vocabulary = options.vocabulary > 0 ? options.vocabulary : kDefaultVocabulary,
                             .validation = options.validation,
                             .progress = progress,
                             .replace_bad_bytes = options.replace_bad_bytes,
                             .documents = documents});
}

void print_notes(const TokenFolder& folder, const TokenizeOptions& options) {
  if (folder.validation_tokens == 0 && options.validation > 0)
    std::printf(
        "note: no tokens for validation: they go to it in pieces of one document, the %lld of which are too few "
        "for --validation %s\n"
        "  fix: more documents, a larger --validation, or --validation 0, which keeps all for training\n",
        static_cast<long long>(folder.documents), format_number(options.validation).c_str());
  if (folder.replaced_bytes > 0)
    std::printf("note: %lld bytes are no UTF-8; each is U+FFFD in the tokens\n",
                static_cast<long long>(folder.replaced_bytes));
  if (folder.space_marks > 0)
    std::printf("note: %lld characters U+2581 of the text come back from the tokens as spaces\n",
                static_cast<long long>(folder.space_marks));
}

}  // namespace

int run_tokenize(const TokenizeOptions& options) {
  const auto begin = Clock::now();
  TokenFolder folder;
  {
    ProgressLine line("tokenize", !options.quiet);
    folder = write_folder(options, [&](int64_t done, int64_t total) { line.update(done, total); });
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const int64_t tokens = folder.train_tokens + folder.validation_tokens;
  std::printf("%s: %lld training and %lld validation tokens, vocabulary %d, ", options.out.c_str(),
              static_cast<long long>(folder.train_tokens), static_cast<long long>(folder.validation_tokens),
              folder.vocabulary);
  if (folder.text_bytes > 0)
    std::printf("%.2f bytes a token, ", static_cast<double>(folder.text_bytes) / static_cast<double>(tokens));
  std::printf("in %s\n", format_us(seconds * 1e6).c_str());
  if (options.documents != "files") std::printf("%lld documents\n", static_cast<long long>(folder.documents));
  print_notes(folder, options);
  return 0;
}

void add_tokenize_command(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command =
      app.add_subcommand("tokenize", "Learn a vocabulary from text files and write them as tokens, or take token ids");
  command->add_option("files", options->files, "Plain-text files (UTF-8); with --ids, files of token ids")->required();
  command->add_option("--out", options->out, "Folder for train.tokens, val.tokens, meta.json, and tokenizer.model")
      ->required();
  command
      ->add_option("--vocab", options->vocabulary,
                   "Number of different tokens; default: 4096, with --ids it must be stated")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()).description(""));
  command->add_option("--validation", options->validation, "Share of the text kept for validation, 0 to 0.5")
      ->capture_default_str();
  CLI::Option* ids =
      command->add_flag("--ids", options->ids, "The files hold token ids: .npy, .jsonl, or raw integers");
  command->add_option("--dtype", options->dtype, "Of raw ids: uint16, uint32, int32 or int64, little-endian")
      ->needs(ids);
  command
      ->add_option("--end-of-text", options->end_of_text,
                   "An id put after each document that does not end with it; herd generate stops there")
      ->needs(ids);
  command
      ->add_flag("--replace-bad-bytes", options->replace_bad_bytes,
                 "U+FFFD for each byte that is no UTF-8; without it such a text is an error")
      ->excludes(ids);
  command
      ->add_option("--documents", options->documents,
                   "What a document of text is: files, blank-lines (between them), jsonl (\"text\" of a line)")
      ->capture_default_str()
      ->excludes(ids);
  command->add_flag("--quiet", options->quiet, "No progress line");
  command->footer(kTokenizeHelp);
  command->callback([options] {
    if (const int status = run_tokenize(*options); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
