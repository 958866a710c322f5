#include "herd/train/data_identity.h"

#include <gtest/gtest.h>

#include "herd/data/token_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

std::map<std::string, std::string> notes_of(const std::string& kind, const std::filesystem::path& path = "nowhere") {
  spec::RunFile run;
  run.data = {.kind = kind, .path = path};
  return data_notes(run);
}

TEST(DataIdentity, IsTheTokenizerAndTheNumberOfTokens) {
  TemporaryFolder folder;
  write_text(folder / "text", "one line\nanother line\na third line\n");
  for (const auto& [out, vocabulary, validation] : {std::tuple("a", 300, 0.0), {"b", 300, 0.5}, {"c", 290, 0.0}})
    write_token_folder(
        {.files = {folder / "text"}, .out = folder / out, .vocabulary = vocabulary, .validation = validation});
  const auto a = notes_of("tokens", folder / "a"), fewer = notes_of("tokens", folder / "b"),
             other = notes_of("tokens", folder / "c");
  EXPECT_EQ(a.size(), 2u);
  EXPECT_EQ(compare_data(a, a, "step-3"), "");
  EXPECT_EQ(compare_data(a, fewer, "step-3"),
            "data " + a.at("data_tokens") + " tokens -> " + fewer.at("data_tokens") + " tokens");
  EXPECT_ERROR(compare_data(a, other, "step-3"), Code::kBadConfig, "another tokenizer",
               a.at("data_tokenizer") + " in the checkpoint step-3", other.at("data_tokenizer") + " in this start",
               "fix: the data.path of that run");
  EXPECT_EQ(compare_data({{"ranks", "2"}}, a, "step-3"), "") << "of a herd that did not note it";
  EXPECT_EQ(compare_data(a, notes_of("random"), "step-3"), "") << "data.kind is compared as a key";
}

}  // namespace
}  // namespace herd::train
