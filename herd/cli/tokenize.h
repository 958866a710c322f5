// herd tokenize FILES... --vocab 4096 --out DIR: text files -> tokenizer.model, train.tokens, val.tokens, meta.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace herd::cli {

struct TokenizeOptions {
  std::vector<std::filesystem::path> files;
  std::filesystem::path out;
  int vocabulary = 4096;
  double validation = 0.05;
  bool quiet = false;  // no progress line
};

void add_tokenize_command(CLI::App& app);
int run_tokenize(const TokenizeOptions& options);  // exit status; throws herd::Error

}  // namespace herd::cli
