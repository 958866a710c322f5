// Writes one SVG picture. Colours are classes (c0 .. c7, text, faint, grid; over: a dashed line; band: seen under the
// pointer only) that follow the reader's light or dark
// mode, alone as a file or inline in a page. Threads: one at a time.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace herd::draw {

inline constexpr int kColours = 8;

enum class Anchor : unsigned char { kStart, kMiddle, kEnd };

std::string escape(std::string_view text);  // for HTML and SVG, attributes included
std::string colour_class(int index);        // "c3"; wraps around
// The style sheet of the colour classes, for a page; every picture carries it too.
std::string_view colour_style();

class Svg {
 public:
  Svg(double width, double height) : width_(width), height_(height) {}

  // `hover` is shown when the pointer rests on the rectangle.
  void rectangle(double x, double y, double width, double height, std::string_view css_class,
                 std::string_view hover = {});
  void line(double x1, double y1, double x2, double y2, std::string_view css_class);
  void polyline(const std::vector<std::pair<double, double>>& points, std::string_view css_class);
  void area(const std::vector<std::pair<double, double>>& outline, std::string_view css_class);  // filled
  void text(double x, double y, std::string_view text, Anchor anchor = Anchor::kStart,
            std::string_view css_class = "text");

  std::string finish(std::string_view title) const;  // an <svg> element; also a file of its own

 private:
  double width_, height_;
  std::string body_;
};

}  // namespace herd::draw
