#include "herd/program/program_names.h"

#include <charconv>
#include <iterator>

namespace herd::program {
namespace {

constexpr std::string_view kOps[] = {
    "load", "forward", "loss", "recompute", "backward", "backward_weight", "all_gather", "all_reduce", "reduce_scatter",
    "norm", "clip",    "step", "send",      "receive",  "fetch",           "evict",      "release"};
constexpr std::string_view kLanes[] = {"compute",  "gather",  "reduce",   "activations", "peer-in",
                                       "peer-out", "copy-in", "copy-out", "host",        "io"};
constexpr std::string_view kTiers[] = {"device", "host", "nvme"};
constexpr std::string_view kForms[] = {"", ".whole", ".shard", ".host", ".partial"};

struct ValueSpelling {
  std::string_view prefix, plural;
  bool indexed, per_micro_batch;
};
constexpr ValueSpelling kValues[] = {
    {"w", "weights", true, false},
    {"g", "gradients", true, false},
    {"s", "states", true, false},
    {"x", "activations", true, true},
    {"dx", "activation gradients", true, true},
    {"graph", "graphs", true, true},
    {"loss", "losses", false, true},
    {"norm", "norms", true, false},
    {"factor", "factors", false, false},
    {"target", "targets", false, true},
    {"pending", "pending gradients", true, true},
};

template <typename Enum, size_t n>
std::optional<Enum> find(const std::string_view (&names)[n], std::string_view text) {
  for (size_t i = 0; i < n; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// Takes digits off the front of text.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || number < 0 || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return number;
}

void append(std::string& out, const std::string& word) { out += (out.empty() ? "" : " ") + word; }

}  // namespace

std::string_view op_name(OpKind kind) { return kOps[static_cast<size_t>(kind)]; }
std::string_view lane_name(Lane lane) { return kLanes[static_cast<size_t>(lane)]; }
std::string_view tier_name(Tier tier) { return kTiers[static_cast<size_t>(tier)]; }
std::string_view kind_name(ValueKind kind) { return kValues[static_cast<size_t>(kind)].plural; }

std::string value_name(const Value& value) {
  const ValueSpelling& spelling = kValues[static_cast<size_t>(value.kind)];
  std::string text(spelling.prefix);
  if (spelling.indexed) text += std::to_string(value.index);
  if (value.micro_batch >= 0) text += "." + std::to_string(value.micro_batch);
  return text + std::string(kForms[static_cast<size_t>(value.form)]);
}

std::string axis_name(const Mesh& mesh, int axis) {
  const bool known = axis >= 0 && axis < static_cast<int>(mesh.axes.size());
  return known ? mesh.axes[static_cast<size_t>(axis)].name : "axis" + std::to_string(axis);
}

std::optional<OpKind> parse_op_kind(std::string_view text) { return find<OpKind>(kOps, text); }
std::optional<Lane> parse_lane(std::string_view text) { return find<Lane>(kLanes, text); }
std::optional<Tier> parse_tier(std::string_view text) { return find<Tier>(kTiers, text); }

std::optional<Value> parse_value(std::string_view text) {
  std::string_view rest = text;
  size_t letters = 0;
  while (letters < rest.size() && rest[letters] >= 'a' && rest[letters] <= 'z') ++letters;
  Value value;
  const ValueSpelling* spelling = nullptr;
  for (size_t i = 0; i < std::size(kValues); ++i) {
    if (kValues[i].prefix == rest.substr(0, letters)) {
      spelling = &kValues[i];
      value.kind = static_cast<ValueKind>(i);
    }
  }
  if (spelling == nullptr) return std::nullopt;
  rest.remove_prefix(letters);
  if (spelling->indexed) {
    const auto index = rest.empty() ? std::nullopt : take_number(rest);
    if (!index) return std::nullopt;
    value.index = *index;
  }
  if (spelling->per_micro_batch) {
    if (rest.size() < 2 || rest[0] != '.') return std::nullopt;
    rest.remove_prefix(1);
    const auto micro_batch = take_number(rest);
    if (!micro_batch) return std::nullopt;
    value.micro_batch = *micro_batch;
  }
  const auto form = find<Form>(kForms, rest);
  if (!form) return std::nullopt;
  value.form = *form;
  if (value_name(value) != text) return std::nullopt;  // leading zeros
  return value;
}

std::string subject(const Program& step, const Op& op) {
  std::string out;
  if (op.block >= 0) append(out, "block" + std::to_string(op.block));
  if (op.micro_batch >= 0) append(out, "mb" + std::to_string(op.micro_batch));
  if (op.kind == OpKind::kRelease || op.kind == OpKind::kFetch || op.kind == OpKind::kEvict) {
    for (const Value& value : op.writes) append(out, value_name(value));
  } else if (op.block < 0) {  // the groups, without their form: "w7"
    for (Value value : op.writes) {
      if (value.kind == ValueKind::kState) continue;
      value.form = Form::kNone;
      append(out, value_name(value));
    }
  }
  if (op.axis != kNoAxis) append(out, "on " + axis_name(step.mesh, op.axis));
  if (op.peer >= 0) append(out, (op.kind == OpKind::kReceive ? "from " : "to ") + std::to_string(op.peer));
  return out;
}

std::string describe(const Program& step, const Op& op) {
  const std::string of = subject(step, op);
  return std::string(op_name(op.kind)) + (of.empty() ? "" : " of " + of);
}

std::string rank_name(const Program& step) {
  std::string place;
  for (size_t axis = 0; axis < step.mesh.axes.size(); ++axis) {
    const Axis& a = step.mesh.axes[axis];
    const bool is_product = a.factors.size() > 1 || a.name.find('*') != std::string::npos;
    if (is_product || !a.members.empty()) continue;
    place +=
        (place.empty() ? "" : ", ") + a.name + " " + std::to_string(step.mesh.index(static_cast<int>(axis), step.rank));
  }
  return "rank " + std::to_string(step.rank) + (place.empty() ? "" : " (" + place + ")");
}

Value weight(int group, Form form) { return {ValueKind::kWeight, group, -1, form}; }
Value gradient(int group, Form form) { return {ValueKind::kGradient, group, -1, form}; }
Value state(int group, Form form) { return {ValueKind::kState, group, -1, form}; }
Value activation(int block, int micro_batch) { return {ValueKind::kActivation, block, micro_batch, Form::kNone}; }
Value activation_gradient(int block, int micro_batch) {
  return {ValueKind::kActivationGradient, block, micro_batch, Form::kNone};
}
Value graph(int block, int micro_batch) { return {ValueKind::kGraph, block, micro_batch, Form::kNone}; }
Value pending(int block, int micro_batch) { return {ValueKind::kPending, block, micro_batch, Form::kNone}; }
Value target(int micro_batch) { return {ValueKind::kTarget, 0, micro_batch, Form::kNone}; }
Value loss(int micro_batch) { return {ValueKind::kLoss, 0, micro_batch, Form::kNone}; }
Value norm(int group) { return {ValueKind::kNorm, group, -1, Form::kNone}; }
Value factor() { return {ValueKind::kFactor, 0, -1, Form::kNone}; }

}  // namespace herd::program
