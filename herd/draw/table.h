// Writes a table as text for the terminal, or as HTML for a page. Threads: pure.
#pragma once

#include <string>
#include <vector>

namespace herd::draw {

struct Column {
  std::string name;
  bool right = false;  // cells stand on the right, as numbers do
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // cells beyond the columns are left out, missing ones are empty
};

// Writes a header line, columns two spaces apart, and no trailing spaces.
std::string text_table(const Table& table);
std::string html_table(const Table& table);

}  // namespace herd::draw
