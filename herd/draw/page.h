// The shell of every page that herd writes: one file, nothing loaded from elsewhere, light and dark, readable when
// printed. Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace herd::draw {

struct Section {
  std::string title;  // plain text; empty = no heading
  std::string html;   // as it stands: pictures of this folder, html_table(), escape()d text
};

std::string html_page(std::string_view title, const std::vector<Section>& sections);

}  // namespace herd::draw
