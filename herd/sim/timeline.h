// What ran when: rows of spans, for the drawings and traces of either IR, predicted or measured. Threads: plain data.
#pragma once

#include <string>
#include <vector>

namespace herd::sim {

struct Span {
  int row = 0;  // index in Timeline::rows
  std::string name;
  std::string category;  // spans of one category share a colour: "forward", "send"
  double start_us = 0;
  double end_us = 0;
  std::string detail = {};  // shown on hover
};

struct Row {
  std::string group;  // "rank 0"; rows of a group stand together
  std::string name;   // "compute"
};

struct Timeline {
  std::string title;
  std::vector<Row> rows;
  std::vector<Span> spans;
};

double end_of(const Timeline& timeline);  // us, 0 when empty

}  // namespace herd::sim
