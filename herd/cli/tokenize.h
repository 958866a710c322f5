// herd tokenize FILES... --vocab 4096 --out DIR: text files -> tokenizer.model, train.tokens, val.tokens, meta.json.
// herd tokenize --ids FILES... --vocab 50257 --out DIR: token ids -> the same without tokenizer.model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace herd::cli {

struct TokenizeOptions {
  std::vector<std::filesystem::path> files;
  std::filesystem::path out;
  int vocabulary = 0;  // 0 = 4096 for text; ids have no default
  double validation = 0.05;
  bool ids = false;                         // the files hold token ids
  std::string dtype = {};                   // of raw ids
  std::string documents = "files";          // of text: what a document is (data/text_documents.h)
  std::optional<int64_t> end_of_text = {};  // after each document of ids
  bool replace_bad_bytes = false;           // of text: U+FFFD for each byte that is no UTF-8
  bool quiet = false;                       // no progress line
};

void add_tokenize_command(CLI::App& app);
int run_tokenize(const TokenizeOptions& options);  // exit status; throws herd::Error

}  // namespace herd::cli
