#include "herd/train/data_identity.h"

#include <utility>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/data/token_file.h"
#include "herd/data/token_folder.h"

namespace herd::train {
namespace {

using Notes = std::map<std::string, std::string>;

constexpr char kTokens[] = "data_tokens", kTokenizer[] = "data_tokenizer";

bool both_say_otherwise(const Notes& a, const Notes& b, const char* name) {
  const auto in_a = a.find(name), in_b = b.find(name);
  return in_a != a.end() && in_b != b.end() && in_a->second != in_b->second;
}

}  // namespace

Notes data_notes(const spec::RunFile& run) {
  if (run.data.kind != "tokens") return {};
  const std::filesystem::path folder = run.data.path;
  std::string tokenizer = identify_tokenizer(folder);  // says best what is wrong with a folder
  return {{kTokenizer, std::move(tokenizer)}, {kTokens, std::to_string(TokenFile(folder / "train.tokens").count())}};
}

std::string compare_data(const Notes& checkpoint_notes, const Notes& notes, const std::string& source) {
  if (both_say_otherwise(checkpoint_notes, notes, kTokenizer)) {
    throw Error(Code::kBadConfig,
                "a run goes on with the tokens it began with, but data.path holds those of another tokenizer:\n  " +
                    printable(checkpoint_notes.at(kTokenizer)) + " in the checkpoint " + source + ", " +
                    printable(notes.at(kTokenizer)) +
                    " in this start\n  fix: the data.path of that run (herd checkpoint inspect shows it), or a new run "
                    "with another log.name");
  }
  if (!both_say_otherwise(checkpoint_notes, notes, kTokens)) return "";
  return "data " + printable(checkpoint_notes.at(kTokens)) + " tokens -> " + notes.at(kTokens) + " tokens";
}

}  // namespace herd::train
