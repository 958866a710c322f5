#include "herd/draw/page.h"

#include "herd/draw/svg.h"

namespace herd::draw {
namespace {

constexpr std::string_view kStyle =
    ":root{color-scheme:light dark;--ink:#1c2330;--faint:#667085;--paper:#fff;--line:#e3e6eb}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--faint:#98a2b3;--paper:#14181f;--line:#2d3440}}"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1040px;margin:2rem "
    "auto;"
    "padding:0 1rem}h1{font-size:1.5rem;margin:0 0 1rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.25rem .9rem .25rem "
    "0;text-align:left;"
    "border-bottom:1px solid var(--line)}th{color:var(--faint);font-weight:500}.right{text-align:right}"
    "pre{overflow-x:auto;font-size:13px;line-height:1.4}figure{margin:0}svg{height:auto}";

}  // namespace

std::string html_page(std::string_view title, const std::vector<Section>& sections) {
  std::string page =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      escape(title) + "</title>\n<style>" + std::string(kStyle) + "</style>\n</head>\n<body>\n<h1>" + escape(title) +
      "</h1>\n";
  for (const Section& section : sections) {
    page += "<section>\n";
    if (!section.title.empty()) page += "<h2>" + escape(section.title) + "</h2>\n";
    page += section.html + "</section>\n";
  }
  return page + "</body>\n</html>\n";
}

}  // namespace herd::draw
