#include "herd/draw/svg.h"

#include <cmath>
#include <cstdio>

namespace herd::draw {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", std::isfinite(value) ? value : 0.0);
  return text;
}

std::string path(const std::vector<std::pair<double, double>>& points) {
  std::string text;
  for (const auto& [x, y] : points) text += (text.empty() ? "" : " ") + number(x) + "," + number(y);
  return text;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return safe;
}

std::string colour_class(int index) { return "c" + std::to_string(((index % kColours) + kColours) % kColours); }

std::string_view colour_style() {
  return "svg{--ink:#1c2330;--faint:#667085;--grid:#e3e6eb;--paper:#fff;--k0:#2f6fd6;--k1:#d97a1f;--k2:#2c8f5b;--k3:#"
         "b8437a;"
         "--k4:#7458c9;--k5:#16889b;--k6:#8c6a3f;--k7:#7a828f;--k8:#c4303a;--k9:#5a9e2c;--k10:#c79a00;--k11:#e8a06a;"
         "--k12:#4a52c4;--k13:#9a3fb5;--k14:#5f7f1f;--k15:#a39413}"
         "@media(prefers-color-scheme:dark){svg{--ink:#e6e9ef;--faint:#98a2b3;--grid:#2d3440;--paper:#14181f;--k0:#"
         "6fa3f5;--k1:#f0a35e;"
         "--k2:#63c08c;--k3:#e583b1;--k4:#a892f0;--k5:#56bccc;--k6:#c4a173;--k7:#a0a8b5;"
         "--k8:#f0767d;--k9:#93cf6b;--k10:#e8c34a;--k11:#b9743c;--k12:#969df5;--k13:#d08be5;--k14:#a3bf63;--k15:#"
         "d6c75a}}"
         "svg text{font:12px "
         "system-ui,sans-serif;fill:var(--ink);paint-order:stroke;stroke:var(--paper);stroke-width:3px}svg "
         ".faint{fill:var(--faint)}"
         "svg .grid{stroke:var(--grid);stroke-width:1}svg .axis{stroke:var(--faint);stroke-width:1}"
         "svg .c0{--c:var(--k0)}svg .c1{--c:var(--k1)}svg .c2{--c:var(--k2)}svg .c3{--c:var(--k3)}"
         "svg .c4{--c:var(--k4)}svg .c5{--c:var(--k5)}svg .c6{--c:var(--k6)}svg .c7{--c:var(--k7)}"
         "svg .c8{--c:var(--k8)}svg .c9{--c:var(--k9)}svg .c10{--c:var(--k10)}svg .c11{--c:var(--k11)}"
         "svg .c12{--c:var(--k12)}svg .c13{--c:var(--k13)}svg .c14{--c:var(--k14)}svg .c15{--c:var(--k15)}"
         "svg .cell{fill-opacity:.35}svg .grid-cell{--c:var(--grid);fill-opacity:.5}svg .paper{--c:var(--paper)}svg "
         "polyline.pale{--c:var(--k0);stroke-opacity:.3;stroke-width:1}"
         "svg rect{fill:var(--c)}svg polyline{stroke:var(--c);stroke-width:1.8;fill:none;stroke-linejoin:round}"
         "svg polygon{fill:var(--c);fill-opacity:.75}"
         "svg .over{--c:var(--ink);stroke-dasharray:6 3}svg .band{fill:transparent}"
         "svg .band:hover{fill:var(--ink);fill-opacity:.12}";
}

void Svg::rectangle(double x, double y, double width, double height, std::string_view css_class, std::string_view hover,
                    double opacity) {
  body_ += "<rect class=\"" + std::string(css_class) + "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" +
           number(width) + "\" height=\"" + number(height) + "\"";
  if (opacity < 1) body_ += " fill-opacity=\"" + number(opacity) + "\"";
  body_ += hover.empty() ? "/>\n" : "><title>" + escape(hover) + "</title></rect>\n";
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view css_class) {
  body_ += "<line class=\"" + std::string(css_class) + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" +
           number(x2) + "\" y2=\"" + number(y2) + "\"/>\n";
}

void Svg::polyline(const std::vector<std::pair<double, double>>& points, std::string_view css_class) {
  body_ += "<polyline class=\"" + std::string(css_class) + "\" points=\"" + path(points) + "\"/>\n";
}

void Svg::area(const std::vector<std::pair<double, double>>& outline, std::string_view css_class) {
  body_ += "<polygon class=\"" + std::string(css_class) + "\" points=\"" + path(outline) + "\"/>\n";
}

void Svg::text(double x, double y, std::string_view text, Anchor anchor, std::string_view css_class) {
  const char* anchor_name = anchor == Anchor::kStart ? "start" : anchor == Anchor::kMiddle ? "middle" : "end";
  body_ += "<text class=\"" + std::string(css_class) + "\" x=\"" + number(x) + "\" y=\"" + number(y) +
           "\" text-anchor=\"" + anchor_name + "\">" + escape(text) + "</text>\n";
}

std::string Svg::finish(std::string_view title) const {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(width_) + " " + number(height_) +
         "\" style=\"max-width:" + number(width_) + "px\" width=\"100%\" role=\"img\">\n<title>" + escape(title) +
         "</title>\n<style>" + std::string(colour_style()) +
         "</style>\n<path class=\"paper\" fill=\"var(--c)\" d=\"M0 0H" + number(width_) + "V" + number(height_) +
         "H0z\"/>\n" + body_ + "</svg>\n";
}

}  // namespace herd::draw
