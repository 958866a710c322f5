#include "herd/data/text_documents.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/expect_error.h"

namespace herd {
namespace {

using Documents = std::vector<std::string>;

Documents documents_of(std::string_view text, TextDocuments kind) {
  Documents out;
  int64_t last = 0;
  visit_documents(text, kind, "a.txt", [&](std::string_view document, int64_t done) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, static_cast<int64_t>(text.size()));
    last = done;
    out.emplace_back(document);
    return true;
  });
  return out;
}

TEST(TextDocuments, LieBetweenBlankLines) {
  const auto documents = [](std::string_view text) { return documents_of(text, TextDocuments::kBlankLines); };
  EXPECT_EQ(documents("a\nb\n\nc\n"), (Documents{"a\nb", "c"}));
  EXPECT_EQ(documents("\n \t\n\r\na\n\n\n\nb"), (Documents{"a", "b"}));
  EXPECT_EQ(documents(" a\n  \nb \n\n"), (Documents{" a", "b "}));
  EXPECT_EQ(documents(""), Documents{});
  EXPECT_EQ(documents("\n\n"), Documents{});
}

TEST(TextDocuments, AreTheTextOfJsonLines) {
  const auto documents = [](std::string_view text) { return documents_of(text, TextDocuments::kJsonl); };
  EXPECT_EQ(documents("{\"text\": \"a\\n\\nb\"}\n\n{\"id\": 3, \"text\": \"\\u00e9\"}\n{\"text\": \"\"}"),
            (Documents{"a\n\nb", "\xC3\xA9"}));
  for (const char* line : {"[1, 2]", "{\"text\": 3}", "{\"txt\": \"a\"}", "{\"text\": \"a", "a",
                           "{\"text\": \"\\ud800\"}", "{\"text\": \"\xE9\"}"}) {
    EXPECT_ERROR(documents(std::string("{\"text\": \"a\"}\n\n") + line), Code::kBadConfig, "a.txt, line 3",
                 "no JSON object with a \"text\"", "fix:");
  }
}

TEST(TextDocuments, AreWholeFilesElse) {
  EXPECT_EQ(documents_of("a\n\nb\n", TextDocuments::kFiles), (Documents{"a\n\nb\n"}));
  EXPECT_EQ(parse_text_documents("files"), TextDocuments::kFiles);
  EXPECT_ERROR(parse_text_documents("lines"), Code::kBadConfig, "--documents lines", "blank-lines or jsonl");
}

TEST(TextDocuments, AreVisitedUntilEnoughAreThere) {
  int visits = 0;
  visit_documents("a\n\nb\n\nc", TextDocuments::kBlankLines, "a.txt",
                  [&](std::string_view, int64_t) { return ++visits < 2; });
  EXPECT_EQ(visits, 2);
}

}  // namespace
}  // namespace herd
