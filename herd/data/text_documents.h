// Finds the documents of a text file:
//   files        the whole file is one
//   blank-lines  lines between blank ones (of spaces and tabs alone) are one, without the line feed of the last
//   jsonl        each line is a JSON object, whose member "text" is one; other members and blank lines are left out
// Empty documents are left out.   Threads: pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace herd {

enum class TextDocuments : uint8_t { kFiles, kBlankLines, kJsonl };

TextDocuments parse_text_documents(std::string_view name);  // throws kBadConfig for another name

// Visits the documents of a file's text in order, until `visit` returns false. `done_bytes` counts the bytes of the
// file up to the end of the document. Throws kBadConfig, naming file and line, where a line of kJsonl is no such
// object.
using VisitDocument = std::function<bool(std::string_view document, int64_t done_bytes)>;
void visit_documents(std::string_view text, TextDocuments kind, const std::string& file, const VisitDocument& visit);

}  // namespace herd
