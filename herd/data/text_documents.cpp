#include "herd/data/text_documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "herd/base/error.h"

namespace herd {
namespace {

bool is_blank_line(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

// Iterates over the lines of a text, without their line feeds.
class TextLines {
 public:
  explicit TextLines(std::string_view text) : text_(text) {}
  bool next() {
    if (end_ >= text_.size()) return false;
    begin_ = end_;
    const size_t line_feed = std::min(text_.find('\n', begin_), text_.size());
    line = text_.substr(begin_, line_feed - begin_);
    end_ = std::min(line_feed + 1, text_.size());
    ++number;
    return true;
  }
  size_t begin() const { return begin_; }
  int64_t done() const { return static_cast<int64_t>(end_); }

  std::string_view line = {};
  int64_t number = 0;

 private:
  std::string_view text_;
  size_t begin_ = 0, end_ = 0;
};

void visit_between_blank_lines(std::string_view text, const VisitDocument& visit) {
  size_t begin = 0, end = 0;  // of the document so far
  TextLines lines(text);
  while (lines.next()) {
    if (!is_blank_line(lines.line)) {
      if (end == begin) begin = lines.begin();
      end = lines.begin() + lines.line.size();
      continue;
    }
    if (end > begin && !visit(text.substr(begin, end - begin), lines.done())) return;
    begin = end;
  }
  if (end > begin) visit(text.substr(begin, end - begin), static_cast<int64_t>(text.size()));
}

void visit_jsonl(std::string_view text, const std::string& file, const VisitDocument& visit) {
  TextLines lines(text);
  while (lines.next()) {
    if (is_blank_line(lines.line)) continue;
    const auto json = nlohmann::json::parse(lines.line, nullptr, false);
    const auto member = json.is_object() ? json.find("text") : json.end();
    if (!json.is_object() || member == json.end() || !member->is_string())
      throw Error(Code::kBadConfig, file + ", line " + std::to_string(lines.number) +
                                        ": it is no JSON object with a \"text\"\n  fix: a line like {\"text\": \"Once "
                                        "upon a time\"} for each document; --ids takes lines of token ids");
    const auto& document = member->get_ref<const std::string&>();
    if (!document.empty() && !visit(document, lines.done())) return;
  }
}

}  // namespace

TextDocuments parse_text_documents(std::string_view name) {
  if (name == "files") return TextDocuments::kFiles;
  if (name == "blank-lines") return TextDocuments::kBlankLines;
  if (name == "jsonl") return TextDocuments::kJsonl;
  throw Error(Code::kBadConfig, "--documents " + std::string(name) +
                                    " is no way to tell documents apart\n  fix: --documents files, blank-lines or "
                                    "jsonl");
}

void visit_documents(std::string_view text, TextDocuments kind, const std::string& file, const VisitDocument& visit) {
  if (kind == TextDocuments::kBlankLines) return visit_between_blank_lines(text, visit);
  if (kind == TextDocuments::kJsonl) return visit_jsonl(text, file, visit);
  if (!text.empty()) visit(text, static_cast<int64_t>(text.size()));
}

}  // namespace herd
