// Writes one SVG picture. Colours are classes that follow the reader's light or dark mode, in a file of its own or
// inline in a page, and so does the paper behind a picture: c0 .. c15, text, faint, grid, cell and grid-cell (of a
// table, full and empty), over (a dashed line) and band (seen under the pointer only). Threads: one at a time.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace herd::draw {

inline constexpr int kColours = 16;

enum class Anchor : unsigned char { kStart, kMiddle, kEnd };

std::string escape(std::string_view text);  // escapes text for HTML and SVG, attributes included
std::string colour_class(int index);        // returns "c3" for 3, 11, ..
// Returns the style sheet of the colour classes, for a page; every picture has it, too.
std::string_view colour_style();

class Svg {
 public:
  Svg(double width, double height) : width_(width), height_(height) {}

  // `hover` is shown when the pointer rests on the rectangle.
  void rectangle(double x, double y, double width, double height, std::string_view css_class,
                 std::string_view hover = {}, double opacity = 1);
  void line(double x1, double y1, double x2, double y2, std::string_view css_class);
  void polyline(const std::vector<std::pair<double, double>>& points, std::string_view css_class);
  void area(const std::vector<std::pair<double, double>>& outline, std::string_view css_class);  // fills it
  void text(double x, double y, std::string_view text, Anchor anchor = Anchor::kStart,
            std::string_view css_class = "text");

  std::string finish(std::string_view title) const;  // returns an <svg> element, which may be a file of its own

 private:
  double width_, height_;
  std::string body_;
};

}  // namespace herd::draw
