#include "herd/draw/table.h"

#include <algorithm>

#include "herd/base/printable.h"
#include "herd/draw/svg.h"

namespace herd::draw {
namespace {

std::string cell(const std::vector<std::string>& row, size_t column) {
  return column < row.size() ? printable(row[column]) : "";
}

}  // namespace

std::string text_table(const Table& table) {
  std::vector<std::string> header;
  std::vector<size_t> widths;
  for (const Column& column : table.columns) {
    header.push_back(column.name);
    widths.push_back(column.name.size());
  }
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < widths.size(); ++c) widths[c] = std::max(widths[c], cell(row, c).size());
  }
  std::string text;
  const auto add_row = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string value = cell(row, c), space(widths[c] - value.size(), ' ');
      line += (c > 0 ? "  " : "") + (table.columns[c].right ? space + value : value + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_row(header);
  for (const auto& row : table.rows) add_row(row);
  return text;
}

std::string html_table(const Table& table) {
  const auto tag = [&](const char* name, size_t c, const std::string& value) {
    return "<" + std::string(name) + (table.columns[c].right ? " class=\"right\">" : ">") + escape(value) + "</" +
           name + ">";
  };
  std::string html = "<table>\n<tr>";
  for (size_t c = 0; c < table.columns.size(); ++c) html += tag("th", c, table.columns[c].name);
  html += "</tr>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (size_t c = 0; c < table.columns.size(); ++c) html += tag("td", c, cell(row, c));
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

}  // namespace herd::draw
