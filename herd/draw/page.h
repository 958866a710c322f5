// Writes the shell of every page of herd. The page is one file that loads nothing from elsewhere, is light or dark as
// its reader has it, and can be printed.   Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace herd::draw {

struct Section {
  std::string title;  // plain text; empty = no heading
  std::string html;   // is copied as it stands: pictures of this folder, html_table(), escape()d text
};

std::string html_page(std::string_view title, const std::vector<Section>& sections);

}  // namespace herd::draw
