#include "herd/launch/help_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "herd/launch/environment.h"

namespace herd::launch {
namespace {

constexpr int kDefaultWidth = 80, kLeastWidth = 40;

size_t begin_of_text(std::string_view line) { return std::min(line.find_first_not_of(' '), line.size()); }

// Returns where the last column begins; the first word where there is one column alone.
size_t last_column(std::string_view line) {
  const size_t begin = begin_of_text(line), gap = line.rfind("  ");
  return gap == std::string_view::npos || gap < begin ? begin : gap + 2;
}

// Appends the words of `text` in lines of at most `width` columns. The first word stands at `column`, where `out` is,
// and so do those of all further lines.
void append_words(std::string& out, std::string_view text, size_t column, size_t width) {
  size_t at = column;
  bool begins = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!begins && at + 1 + word.size() > width) {
      out += "\n" + std::string(column, ' ');
      at = column;
      begins = true;
    }
    out += (begins ? "" : " ") + std::string(word);
    at += word.size() + (begins ? 0 : 1);
    begins = false;
  }
}

}  // namespace

std::string fitted(std::string_view help, int columns) {
  const size_t width = static_cast<size_t>(std::max(columns, kLeastWidth));
  std::string out;
  while (!help.empty()) {
    const size_t end = std::min(help.find('\n'), help.size());
    const std::string_view line = help.substr(0, end);
    const bool ends = end < help.size();
    help.remove_prefix(std::min(end + 1, help.size()));
    if (line.size() <= width) {
      out += line;
    } else {
      size_t column = last_column(line);
      const std::string_view words = line.substr(column);
      std::string_view before = line.substr(0, column);
      if (column > begin_of_text(line) && column + width / 3 > width) {  // too far to the right: on a line of its own
        before = before.substr(0, before.find_last_not_of(' ') + 1);
        column = begin_of_text(line) + 4;
        append_words(out, before, 0, width);
        out += "\n" + std::string(column, ' ');
      } else {
        out += before;
      }
      append_words(out, words, column, width);
    }
    if (ends) out += "\n";
  }
  return out;
}

int terminal_width() {
  if (const int columns = std::atoi(process_variable("COLUMNS").c_str()); columns > 0) return columns;
  winsize size{};
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    if (ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefaultWidth;
}

void print_error(std::string_view text) {
  std::fputs((isatty(STDERR_FILENO) == 1 ? fitted(text, terminal_width()) : std::string(text)).c_str(), stderr);
}

}  // namespace herd::launch
