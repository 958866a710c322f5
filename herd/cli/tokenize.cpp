#include "herd/cli/tokenize.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>

#include "herd/base/units.h"
#include "herd/cli/progress_line.h"
#include "herd/data/token_folder.h"

namespace herd::cli {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

int run_tokenize(const TokenizeOptions& options) {
  const auto begin = Clock::now();
  TokenFolder folder;
  {
    ProgressLine line("tokenize", !options.quiet);
    folder = write_token_folder({.files = options.files,
                                 .out = options.out,
                                 .vocabulary = options.vocabulary,
                                 .validation = options.validation,
                                 .progress = [&](int64_t done, int64_t all) { line.update(done, all); }});
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const int64_t tokens = folder.train_tokens + folder.validation_tokens;
  std::printf("%s: %lld training and %lld validation tokens, vocabulary %d, %.2f bytes a token, in %s\n",
              options.out.c_str(), static_cast<long long>(folder.train_tokens),
              static_cast<long long>(folder.validation_tokens), folder.vocabulary,
              static_cast<double>(folder.text_bytes) / static_cast<double>(tokens), format_us(seconds * 1e6).c_str());
  return 0;
}

void add_tokenize_command(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Learn a vocabulary from text files and write them as tokens");
  command->add_option("files", options->files, "Plain-text files (UTF-8)")->required();
  command->add_option("--out", options->out, "Folder for tokenizer.model, train.tokens, val.tokens")->required();
  command->add_option("--vocab", options->vocabulary, "Number of different tokens")->capture_default_str();
  command->add_option("--validation", options->validation, "Share of the text kept for validation, 0 to 0.5")
      ->capture_default_str();
  command->add_flag("--quiet", options->quiet, "No progress line");
  command->callback([options] {
    if (const int status = run_tokenize(*options); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace herd::cli
