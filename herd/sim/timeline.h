// Defines what ran when: rows of spans, for the drawings and traces of schedules and programs, predicted or measured.
// Threads: plain data.
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

// Leaves one row and arrives in another: a message, a signal.
struct Arrow {
  int from_row = 0;
  double from_us = 0;
  int to_row = 0;
  double to_us = 0;
};

struct Timeline {
  std::string title;
  std::vector<Row> rows;
  std::vector<Span> spans;
  std::vector<Arrow> arrows = {};  // drawn as lines
};

double end_us(const Timeline& timeline);  // returns the last end in us; 0 when empty

}  // namespace herd::sim
