#include "herd/train/measured_timeline.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "herd/base/check.h"
#include "herd/program/program_names.h"

namespace herd::train {
namespace {

// A line a row and a line a span; names hold neither tabs nor line feeds.
std::string to_text(const sim::Timeline& timeline) {
  std::ostringstream text;
  for (const sim::Row& row : timeline.rows) text << "row\t" << row.group << '\t' << row.name << '\n';
  for (const sim::Span& span : timeline.spans)
    text << span.row << '\t' << span.name << '\t' << span.category << '\t' << span.start_us << '\t' << span.end_us
         << '\n';
  return text.str();
}

void append_text(const std::string& text, sim::Timeline& to) {
  const int first_row = static_cast<int>(to.rows.size());
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells;
    std::istringstream rest(line);
    for (std::string cell; std::getline(rest, cell, '\t');) cells.push_back(cell);
    if (cells.size() == 3) {
      to.rows.push_back({cells[1], cells[2]});
      continue;
    }
    HERD_CHECK_EQ(cells.size(), size_t{5});
    to.spans.push_back({first_row + std::stoi(cells[0]), cells[1], cells[2], std::stod(cells[3]), std::stod(cells[4])});
  }
}

}  // namespace

sim::Timeline last_step(const runtime::Executor& executor) {
  const program::Program& step = executor.program();
  sim::Timeline timeline;
  std::map<program::Lane, int> rows;
  for (const program::Op& op : step.ops) rows.try_emplace(op.lane, 0);
  for (auto& [lane, row] : rows) {
    row = static_cast<int>(timeline.rows.size());
    timeline.rows.push_back({"rank " + std::to_string(step.rank), std::string(program::lane_name(lane))});
  }
  const std::vector<runtime::OpTime> times = executor.times();
  const auto first = std::ranges::min_element(times, {}, &runtime::OpTime::begin_us);
  for (const runtime::OpTime& time : times) {
    const program::Op& op = step.ops[static_cast<size_t>(time.op)];
    if (op.kind == program::OpKind::kRelease) continue;
    timeline.spans.push_back({.row = rows.at(op.lane),
                              .name = program::describe(step, op),
                              .category = std::string(program::op_name(op.kind)),
                              .start_us = time.begin_us - first->begin_us,
                              .end_us = time.end_us - first->begin_us});
  }
  return timeline;
}

sim::Timeline gather_timelines(const sim::Timeline& mine, Communicator& comm) {
  const std::string text = comm.rank() < kMaxTracedRanks ? to_text(mine) : "";
  std::vector<int64_t> own_bytes = {static_cast<int64_t>(text.size())}, bytes(static_cast<size_t>(comm.size()));
  comm.all_gather(own_bytes, bytes, {.name = "bytes of the traces"});
  std::string all(comm.rank() == 0 ? static_cast<size_t>(std::reduce(bytes.begin(), bytes.end())) : 0, '\0');
  std::vector<uint8_t> from(text.begin(), text.end()), into(all.size());
  comm.gather(from, into, 0, {.name = "the traces", .counts = bytes});
  sim::Timeline timeline;
  size_t begin = 0;
  for (const int64_t count : bytes) {
    if (comm.rank() != 0) break;
    append_text(
        std::string(into.begin() + static_cast<int64_t>(begin), into.begin() + static_cast<int64_t>(begin) + count),
        timeline);
    begin += static_cast<size_t>(count);
  }
  return timeline;
}

void append(sim::Timeline& to, const sim::Timeline& later, double shift_us) {
  if (to.rows.empty()) to.rows = later.rows;
  for (sim::Span span : later.spans) {
    span.start_us += shift_us;
    span.end_us += shift_us;
    to.spans.push_back(std::move(span));
  }
}

}  // namespace herd::train
