// A table as text for the terminal, or as HTML for a page. Threads: pure.
#pragma once

#include <string>
#include <vector>

namespace herd::draw {

struct Column {
  std::string name;
  bool right = false;  // numbers stand on the right
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // cells beyond the columns are left out, missing ones are empty
};

std::string text_table(const Table& table);  // columns two spaces apart, a header line, no trailing spaces
std::string html_table(const Table& table);

}  // namespace herd::draw
