#include "herd/program/program_text.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "herd/base/error.h"
#include "herd/draw/table.h"
#include "herd/program/op_dependencies.h"
#include "herd/program/program_names.h"

namespace herd::program {
namespace {

constexpr std::string_view kTitle = "herd program 4";
constexpr int kMaxNumber = 1 << 20;  // largest count or index in a file

using Row = std::vector<std::string>;

std::string table_text(const std::vector<Row>& rows) {  // the first row names the columns
  draw::Table table;
  for (const std::string& name : rows.at(0)) table.columns.push_back({name});
  table.rows.assign(rows.begin() + 1, rows.end());
  return draw::text_table(table);
}

std::string values_text(const Mesh& mesh, const std::vector<Value>& values) {
  std::string out;
  for (const Value& value : values) out += (out.empty() ? "" : " ") + value_name(mesh, value);
  return out.empty() ? "-" : out;
}

// Returns " dp=2@2 fsdp=2@1 dp*fsdp=2@2*2@1 pp{0,3}=4@4": size@stride of each factor.
std::string mesh_text(const Mesh& mesh) {
  std::string out;
  for (const Axis& axis : mesh.axes) {
    out += " " + axis.name + "=";
    for (size_t i = 0; i < axis.factors.size(); ++i) {
      out += (i > 0 ? "*" : "") + std::to_string(axis.factors[i].size) + "@" + std::to_string(axis.factors[i].stride);
    }
  }
  return out;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    if (end > at) words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// Splits a line into cells, which two or more blanks separate; a single blank separates words in a cell.
std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  while (!line.empty()) {
    const size_t end = std::min(line.find("  "), line.size());
    cells.push_back(line.substr(0, end));
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
  }
  return cells;
}

// Reads a program's text; throws kCorruptFile with the line that breaks the grammar.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Program parse() {
    if (next() != kTitle) refuse("must be \"" + std::string(kTitle) + "\"");
    step_.rank = number(field("rank"), kMaxNumber);
    step_.num_blocks = number(field("blocks"), kMaxNumber);
    step_.micro_batches = number(field("micro_batches"), kMaxNumber);
    mesh(field("mesh"));
    divides(field("data"), Divided::kSamples);
    divides(field("tensor"), Divided::kLayers);
    if (text_.starts_with("context ")) context(field("context"));
    if (text_.starts_with("stages ")) divides(field("stages"), Divided::kStages);
    if (text_.starts_with("experts ")) divides(field("experts"), Divided::kExperts);
    join(Divided::kSamples, Divided::kTokens);
    join(Divided::kTokens, Divided::kLayers);
    groups(field("groups"));
    section({"value", "bytes", "persistent", "slot"}, [&](const auto& cells) { value_row(cells); });
    section({"scratch", "block", "bytes"}, [&](const auto& cells) { scratch_row(cells); });
    if (text_.starts_with("\ngraph ")) section({"graph", "refers to"}, [&](const auto& cells) { kept_row(cells); });
    section({"op", "of", "lane", "reads", "writes"}, [&](const auto& cells) { op_row(cells); });
    if (!text_.empty()) refuse("is after the end: the ops are the last section");
    return std::move(step_);
  }

 private:
  [[noreturn]] void refuse(const std::string& rule) const {
    throw Error(Code::kCorruptFile, "program text, line " + std::to_string(line_) + " " + rule + ", got \"" +
                                        std::string(current_.substr(0, 120)) + "\"");
  }
  std::string_view next() {
    const size_t end = std::min(text_.find('\n'), text_.size());
    current_ = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    ++line_;
    return current_;
  }
  std::string_view field(std::string_view name) {
    const std::string_view line = next();
    if (!line.starts_with(name) || line.size() < name.size() + 2 || line[name.size()] != ' ') {
      refuse("must be \"" + std::string(name) + " ...\"");
    }
    return line.substr(name.size() + 1);
  }
  int64_t number(std::string_view text, int64_t largest) const {
    int64_t value = -1;
    const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || rest != text.data() + text.size() || value < 0 || value > largest) {
      refuse("must hold a number in [0, " + std::to_string(largest) + "] where \"" + std::string(text.substr(0, 40)) +
             "\" stands");
    }
    return value;
  }
  Value value(std::string_view text) const {
    const auto parsed = parse_value(step_.mesh, text);
    if (!parsed) refuse("must name a value where \"" + std::string(text.substr(0, 40)) + "\" stands");
    return *parsed;
  }
  std::vector<Value> values(std::string_view cell) const {
    std::vector<Value> out;
    if (cell == "-") return out;
    for (const auto word : words_of(cell)) out.push_back(value(word));
    return out;
  }
  // Reads the number of ranks, then the axes.
  void mesh(std::string_view text) {
    const auto words = words_of(text);
    if (words.empty()) refuse("must hold the number of ranks");
    step_.mesh.world_size = static_cast<int>(number(words[0], kMaxNumber));
    if (words.size() > 1 + static_cast<size_t>(kMaxAxes))
      refuse("must hold at most " + std::to_string(kMaxAxes) + " axes");
    for (size_t i = 1; i < words.size(); ++i) step_.mesh.axes.push_back(axis(words[i]));
  }
  // Reads the axis whose ranks divide something, which no other ranks do.
  void divides(std::string_view text, Divided what) {
    if (text == "-") {
      if (what != Divided::kSamples && what != Divided::kLayers) refuse("must name an axis of the mesh");
      return;
    }
    const int axis = step_.mesh.find(text);
    if (axis == kNoAxis) refuse("must name an axis of the mesh, or -");
    Divided& divided = step_.mesh.axes[static_cast<size_t>(axis)].divides;
    if (divided != Divided::kNothing) refuse("must name an axis of its own");
    divided = what;
  }
  // Reads the axis whose ranks share tokens, and whether these lie in a zigzag.
  void context(std::string_view text) {
    constexpr std::string_view kZigzag = " zigzag";
    step_.context_zigzag = text.ends_with(kZigzag);
    divides(text.substr(0, text.size() - (step_.context_zigzag ? kZigzag.size() : 0)), Divided::kTokens);
  }
  // Finds the axis of all ranks that divide one thing or the other, the product of two.
  void join(Divided one, Divided other) {
    const int first = step_.mesh.dividing(one), second = step_.mesh.dividing(other);
    if (first == kNoAxis || second == kNoAxis) return;
    auto& axes = step_.mesh.axes;
    const Axis both = product(axes[static_cast<size_t>(first)], axes[static_cast<size_t>(second)]);
    for (Axis& axis : axes) {
      if (axis.divides != Divided::kNothing || axis.factors != both.factors || axis.members != both.members) continue;
      axis.divides = one | other;
      return;
    }
  }
  Axis axis(std::string_view word) const {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0) refuse("must hold axis=size@stride");
    Axis out{std::string(word.substr(0, equals)), {}};
    std::string_view rest = word.substr(equals + 1);
    for (bool more = true; more;) {
      const size_t end = rest.find('*'), at = rest.substr(0, end).find('@');
      if (at == std::string_view::npos) refuse("must hold axis=size@stride");
      const auto positive = [&](std::string_view digits) {
        const auto value = static_cast<int>(number(digits, kMaxNumber));
        if (value == 0) refuse("must hold sizes and strides >= 1");
        return value;
      };
      const int size = positive(rest.substr(0, at));
      out.factors.push_back({positive(rest.substr(at + 1, end == std::string_view::npos ? end : end - at - 1)), size});
      more = end != std::string_view::npos;
      if (more) rest.remove_prefix(end + 1);
    }
    out.members = members(out);
    return out;
  }
  // Reads the members in an axis's name: "pp{0,3}" has places 0 and 3.
  std::vector<int> members(const Axis& axis) const {
    std::vector<int> out;
    const size_t open = axis.name.find('{');
    if (open == std::string::npos) return out;
    if (axis.name.back() != '}') refuse("must end the members of an axis with }");
    std::string_view rest = std::string_view(axis.name).substr(open + 1, axis.name.size() - open - 2);
    for (bool more = true; more;) {
      const size_t end = rest.find(',');
      out.push_back(static_cast<int>(number(rest.substr(0, end), kMaxNumber)));
      if (out.size() > 1 && out[out.size() - 2] >= out.back()) refuse("must list members in ascending order");
      more = end != std::string_view::npos;
      if (more) rest.remove_prefix(end + 1);
    }
    if (out.back() >= axis.places()) refuse("must list members that are places of the axis");
    return out;
  }
  void groups(std::string_view text) {
    step_.block_groups.emplace_back();
    for (const auto word : words_of(text)) {
      if (word == "|")
        step_.block_groups.emplace_back();
      else if (word != "-")
        step_.block_groups.back().push_back(static_cast<int>(number(word, kMaxNumber)));
    }
    if (step_.num_blocks == 0) step_.block_groups.clear();
    if (static_cast<int>(step_.block_groups.size()) != step_.num_blocks) refuse("must list the groups of every block");
  }
  template <typename RowFunction>
  void section(const std::vector<std::string_view>& heading, RowFunction row) {
    if (!next().empty()) refuse("must be empty before a section");
    if (cells_of(next()) != heading)
      refuse("must be the heading \"" + std::string(heading[0]) + "  " + std::string(heading[1]) + " ...\"");
    while (!text_.empty() && text_.front() != '\n') {
      const auto cells = cells_of(next());
      if (cells.size() != heading.size())
        refuse("must have " + std::to_string(heading.size()) + " cells, two blanks apart");
      row(cells);
    }
  }
  void value_row(const std::vector<std::string_view>& cells) {
    ValueInfo info;
    info.bytes = number(cells[1], int64_t{1} << 50);
    if (cells[2] != "yes" && cells[2] != "no" && cells[2] != "pooled")
      refuse("must be \"name bytes yes|no|pooled slot\"");
    info.persistent = cells[2] == "yes";
    info.pooled = cells[2] == "pooled";
    info.slot = cells[3] == "-" ? -1 : static_cast<int>(number(cells[3], kMaxNumber));
    if (!step_.values.emplace(value(cells[0]), info).second) refuse("declares a value twice");
  }
  void scratch_row(const std::vector<std::string_view>& cells) {
    const auto kind = parse_op_kind(cells[0]);
    if (!kind) refuse("must begin with the name of an op");
    const std::pair key(*kind, cells[1] == "-" ? -1 : static_cast<int>(number(cells[1], kMaxNumber)));
    const bool negative = cells[2].starts_with('-');  // an op whose values share memory has negative scratch
    const int64_t bytes = number(cells[2].substr(negative ? 1 : 0), int64_t{1} << 50);
    if (!step_.scratch.emplace(key, negative ? -bytes : bytes).second) refuse("declares scratch twice");
  }
  void kept_row(const std::vector<std::string_view>& cells) {
    std::vector<spec::TensorId> tensors;
    for (const Value& value : values(cells[1])) {
      if (value.kind != ValueKind::kActivation) refuse("must name activations");
      tensors.push_back(tensor_of(value));
    }
    if (!step_.kept.emplace(static_cast<int>(number(cells[0], kMaxNumber)), tensors).second)
      refuse("declares a graph twice");
  }
  void op_row(const std::vector<std::string_view>& cells) {
    const auto kind = parse_op_kind(cells[0]);
    const auto lane = parse_lane(cells[2]);
    if (!kind || !lane) refuse("must name an op and a lane");
    Op op{.kind = *kind, .lane = *lane, .reads = values(cells[3]), .writes = values(cells[4])};
    const auto words = words_of(cells[1]);
    for (size_t i = 0; i < words.size(); ++i) {
      const bool more = i + 1 < words.size();
      if (words[i].starts_with("block"))
        op.block = static_cast<int>(number(words[i].substr(5), kMaxNumber));
      else if (words[i].starts_with("mb"))
        op.micro_batch = static_cast<int>(number(words[i].substr(2), kMaxNumber));
      else if (words[i] == "part" && i + 3 < words.size() && words[i + 2] == "of") {
        op.part = static_cast<int>(number(words[i + 1], kMaxNumber));
        op.parts = static_cast<int>(number(words[i + 3], kMaxNumber));
        i += 3;
      } else if (words[i] == "on" && more) {
        op.axis = step_.mesh.find(words[++i]);
        if (op.axis == kNoAxis) refuse("must name an axis of the mesh after \"on\"");
      } else if ((words[i] == "to" || words[i] == "from") && more)
        op.peer = static_cast<int>(number(words[++i], kMaxNumber));
      else if (words[i] == "at" && more)
        op.servers = static_cast<int>(number(words[++i], kMaxNumber));
      else if (words[i] == "within" && more)
        op.staleness = static_cast<int>(number(words[++i], kMaxNumber));
      else if (words[i] == "without" && more && words[++i] == "bound")
        op.staleness = kNoBound;
    }
    const std::string expected = subject(step_, op);
    if ((expected.empty() ? "-" : expected) != cells[1])
      refuse("must be of \"" + expected + "\", which is what its columns say");
    step_.ops.push_back(std::move(op));
  }

  std::string_view text_, current_;
  int line_ = 0;
  Program step_;
};

}  // namespace

std::string to_text(const Program& step, const TextOptions& options) {
  std::string out = std::string(kTitle) + "\nrank " + std::to_string(step.rank) + "\nblocks " +
                    std::to_string(step.num_blocks) + "\nmicro_batches " + std::to_string(step.micro_batches) +
                    "\nmesh " + std::to_string(step.mesh.world_size) + mesh_text(step.mesh);
  const std::pair<const char*, Divided> divisions[] = {{"data", Divided::kSamples},
                                                       {"tensor", Divided::kLayers},
                                                       {"context", Divided::kTokens},
                                                       {"stages", Divided::kStages},
                                                       {"experts", Divided::kExperts}};
  for (const auto& [line, what] : divisions) {
    const int axis = step.mesh.dividing(what);
    const bool is_optional = what != Divided::kSamples && what != Divided::kLayers;
    if (axis == kNoAxis && is_optional) continue;
    out += std::string("\n") + line + " " + (axis == kNoAxis ? "-" : axis_name(step.mesh, axis));
    if (what == Divided::kTokens && step.context_zigzag) out += " zigzag";
  }
  out += "\ngroups";
  for (size_t b = 0; b < step.block_groups.size(); ++b) {
    if (b > 0) out += " |";
    if (step.block_groups[b].empty()) out += " -";
    for (const int g : step.block_groups[b]) out += " " + std::to_string(g);
  }
  if (step.block_groups.empty()) out += " -";

  std::vector<Row> values = {{"value", "bytes", "persistent", "slot"}};
  for (const auto& [value, info] : step.values) {
    values.push_back({value_name(step.mesh, value), std::to_string(info.bytes),
                      info.persistent ? "yes"
                      : info.pooled   ? "pooled"
                                      : "no",
                      info.slot < 0 ? "-" : std::to_string(info.slot)});
  }
  std::vector<Row> scratch = {{"scratch", "block", "bytes"}};
  for (const auto& [op, bytes] : step.scratch) {
    scratch.push_back(
        {std::string(op_name(op.first)), op.second < 0 ? "-" : std::to_string(op.second), std::to_string(bytes)});
  }
  std::vector<Row> kept = {{"graph", "refers to"}};
  for (const auto& [block, tensors] : step.kept) {
    std::vector<Value> values_kept;
    for (const spec::TensorId tensor : tensors) values_kept.push_back(activation(tensor, 0));
    kept.push_back({std::to_string(block), values_text(step.mesh, values_kept)});
  }
  std::vector<Row> ops = {{"op", "of", "lane", "reads", "writes"}};
  for (const Op& op : step.ops) {
    const std::string of = subject(step, op);
    ops.push_back({std::string(op_name(op.kind)), of.empty() ? "-" : of, std::string(lane_name(op.lane)),
                   values_text(step.mesh, op.reads), values_text(step.mesh, op.writes)});
  }
  if (options.dependencies) {
    const auto waits = dependencies(step);
    ops[0].push_back("waits for");
    for (size_t i = 0; i < waits.size(); ++i) {
      std::string text;
      for (const Dependency& dependency : waits[i]) {
        if (step.ops[static_cast<size_t>(dependency.op)].lane == step.ops[i].lane) continue;  // lane order implies it
        text += (text.empty() ? "#" : " #") + std::to_string(dependency.op) +
                (dependency.distance > 0 ? " of the step before" : "");
      }
      ops[i + 1].push_back(text);
    }
  }
  return out + "\n\n" + table_text(values) + "\n" + table_text(scratch) + "\n" +
         (step.kept.empty() ? "" : table_text(kept) + "\n") + table_text(ops);
}

Program parse_program(std::string_view text) { return Parser(text).parse(); }

}  // namespace herd::program
