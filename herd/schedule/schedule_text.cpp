#include "herd/schedule/schedule_text.h"

#include <charconv>
#include <limits>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/schedule/schedule_names.h"

namespace herd {
namespace {

constexpr int64_t kMaxSteps = 10'000'000;
constexpr Space kSpaces[] = {Space::kInput, Space::kOutput, Space::kScratch, Space::kStage};
constexpr StepKind kKinds[] = {StepKind::kSend,   StepKind::kReceive, StepKind::kReceiveReduce, StepKind::kCopy,
                               StepKind::kReduce, StepKind::kSignal,  StepKind::kWait};

bool sends(StepKind kind) { return kind == StepKind::kSend || kind == StepKind::kSignal; }
bool is_local(StepKind kind) { return kind == StepKind::kCopy || kind == StepKind::kReduce; }

std::string slice_text(const Slice& slice, Rank self) {
  const std::string owner = slice.rank == self ? "" : std::to_string(slice.rank) + ":";
  return owner + std::string(space_name(slice.space)) + "[" + std::to_string(slice.begin) + "," +
         std::to_string(slice.end) + ")";
}

std::string step_text(const Step& step, Rank self) {
  std::string line(step_kind_name(step.kind));
  if (!is_local(step.kind)) line += (sends(step.kind) ? " -> " : " <- ") + std::to_string(step.peer);
  for (const Slice& target : step.targets) line += " " + slice_text(target, self);
  if (!step.targets.empty() && !step.sources.empty()) line += " =";
  for (const Slice& source : step.sources) line += " " + slice_text(source, self);
  return line + (step.completes ? " complete" : "");
}

// Reads a schedule's text; throws kCorruptFile with the line that breaks the grammar.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Schedule parse() {
    Schedule s;
    next_line();
    expect("herd-schedule");
    if (const std::string_view version = word(); version != "1")
      fail("version is 1, this file says \"" + std::string(version) + "\"");
    field("collective");
    s.collective = named(parse_collective);
    field("algorithm");
    s.algorithm = word();
    if (s.algorithm.empty()) fail("an algorithm has a name");
    field("rank");
    s.self = static_cast<Rank>(number(0, std::numeric_limits<int>::max()));
    expect("of");
    s.num_ranks = static_cast<int>(number(1, std::numeric_limits<int>::max()));
    if (s.self >= s.num_ranks) fail("rank < number of ranks");
    if (accept("root")) s.root = static_cast<int>(number(0, s.num_ranks - 1));
    field("elements");
    s.elements = number(0, std::numeric_limits<int64_t>::max());
    s.dtype = named(parse_dtype);
    expect("accumulate");
    s.accumulate = named(parse_dtype);
    if (accept("in_place")) s.in_place = true;
    next_line();
    if (accept("counts")) {
      const int64_t n = s.num_ranks, wanted = s.collective == Collective::kAllToAll ? n * n : n;
      while (static_cast<int64_t>(s.counts.size()) < wanted) {
        if (line_.empty()) fail(std::to_string(wanted) + " counts stand here");
        s.counts.push_back(number(0, std::numeric_limits<int64_t>::max() / wanted));
      }
      next_line();
    }
    expect("memory");
    expect("scratch");
    s.scratch_elements = number(0, std::numeric_limits<int64_t>::max());
    expect("stage");
    s.stage_elements = number(0, std::numeric_limits<int64_t>::max());
    field("steps");
    for (int64_t left = number(0, kMaxSteps); left > 0; --left) {
      next_line();
      s.steps.push_back(step(s));
    }
    end_of_line();
    if (!text_.empty()) fail("nothing follows the last step");
    return s;
  }

 private:
  [[noreturn]] void fail(const std::string& rule) const {
    throw Error(Code::kCorruptFile, "schedule, line " + std::to_string(line_number_) + ": " + rule);
  }

  void next_line() {
    if (line_number_ > 0) end_of_line();
    if (text_.empty()) fail("the file ends too early");
    const size_t end = text_.find('\n');
    if (end == std::string_view::npos) fail("every line ends with a newline");
    line_ = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    ++line_number_;
  }

  void end_of_line() const {
    if (!line_.empty()) fail("\"" + std::string(line_.substr(0, 40)) + "\" is too much");
  }

  void field(std::string_view name) {
    next_line();
    expect(name);
  }

  // Removes the next word from the line; words are one space apart.
  std::string_view word() {
    const size_t end = std::min(line_.find(' '), line_.size());
    const std::string_view found = line_.substr(0, end);
    line_.remove_prefix(std::min(end + 1, line_.size()));
    return found;
  }

  bool accept(std::string_view wanted) {
    const std::string_view before = line_;
    if (word() == wanted) return true;
    line_ = before;
    return false;
  }

  void expect(std::string_view wanted) {
    const std::string_view found = word();
    if (found != wanted)
      fail("\"" + std::string(wanted) + "\" stands here, not \"" + std::string(found.substr(0, 40)) + "\"");
  }

  int64_t to_number(std::string_view digits, int64_t least, int64_t most) const {
    int64_t value = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (problem != std::errc{} || end != digits.data() + digits.size() || value < least || value > most) {
      fail("a number from " + std::to_string(least) + " to " + std::to_string(most) + " stands here, not \"" +
           std::string(digits.substr(0, 40)) + "\"");
    }
    return value;
  }

  int64_t number(int64_t least, int64_t most) { return to_number(word(), least, most); }

  template <typename T>
  T named(T (*parse_name)(std::string_view)) {
    try {
      return parse_name(word());
    } catch (const Error& error) {
      fail(error.message());
    }
  }

  Slice slice(std::string_view text, const Schedule& s) const {
    const std::string_view whole = text;
    const auto bad = [&] {
      fail("a slice is [RANK:]SPACE[BEGIN,END), not \"" + std::string(whole.substr(0, 40)) + "\"");
    };
    Slice result;
    result.rank = s.self;
    if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
      result.rank = static_cast<Rank>(to_number(text.substr(0, colon), 0, s.num_ranks - 1));
      text.remove_prefix(colon + 1);
    }
    const size_t open = text.find('['), comma = text.find(',');
    if (open == std::string_view::npos || comma == std::string_view::npos || comma < open || text.back() != ')') bad();
    bool is_known = false;
    for (const Space space : kSpaces) {
      if (text.substr(0, open) != space_name(space)) continue;
      result.space = space;
      is_known = true;
    }
    if (!is_known) bad();
    const int64_t most = std::numeric_limits<int64_t>::max();
    result.begin = to_number(text.substr(open + 1, comma - open - 1), 0, most);
    result.end = to_number(text.substr(comma + 1, text.size() - comma - 2), result.begin, most);
    return result;
  }

  Step step(const Schedule& s) {
    Step result;
    const std::string_view name = word();
    bool is_known = false;
    for (const StepKind kind : kKinds) {
      if (name != step_kind_name(kind)) continue;
      result.kind = kind;
      is_known = true;
    }
    if (!is_known) fail("no step is called \"" + std::string(name.substr(0, 40)) + "\"");
    if (!is_local(result.kind)) {
      expect(sends(result.kind) ? "->" : "<-");
      result.peer = static_cast<Rank>(number(0, s.num_ranks - 1));
    }
    const bool only_targets = result.kind == StepKind::kReceive;
    const bool has_targets = only_targets || result.kind == StepKind::kReceiveReduce || is_local(result.kind);
    bool in_targets = has_targets;
    while (!line_.empty()) {
      if (accept("complete")) {
        result.completes = true;
        end_of_line();
      } else if (in_targets && !only_targets && accept("=")) {
        in_targets = false;
      } else {
        (in_targets ? result.targets : result.sources).push_back(slice(word(), s));
      }
    }
    if (in_targets && !only_targets) fail("\" = \" and the sources follow the targets");
    return result;
  }

  std::string_view text_;
  std::string_view line_;
  int line_number_ = 0;
};

}  // namespace

std::string to_text(const Schedule& s) {
  std::string text = "herd-schedule 1\ncollective " + std::string(collective_name(s.collective)) + "\nalgorithm " +
                     s.algorithm + "\nrank " + std::to_string(s.self) + " of " + std::to_string(s.num_ranks);
  if (s.root >= 0) text += " root " + std::to_string(s.root);
  text += "\nelements " + std::to_string(s.elements) + " " + std::string(dtype_name(s.dtype)) + " accumulate " +
          std::string(dtype_name(s.accumulate)) + (s.in_place ? " in_place" : "");
  if (!s.counts.empty()) text += "\ncounts";
  for (const int64_t count : s.counts) text += " " + std::to_string(count);
  text += "\nmemory scratch " + std::to_string(s.scratch_elements) + " stage " + std::to_string(s.stage_elements) +
          "\nsteps " + std::to_string(s.steps.size()) + "\n";
  for (const Step& step : s.steps) text += step_text(step, s.self) + "\n";
  return text;
}

Schedule parse_schedule(std::string_view text) { return Parser(text).parse(); }

}  // namespace herd
