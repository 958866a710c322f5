#include "herd/program/program_names.h"

#include <array>
#include <charconv>
#include <iterator>

#include "herd/program/collective_message.h"

namespace herd::program {
namespace {

constexpr std::string_view kOps[] = {
    "load",           "forward", "loss",   "recompute", "backward", "backward_weight", "all_gather", "all_reduce",
    "reduce_scatter", "norm",    "clip",   "step",      "send",     "receive",         "fetch",      "evict",
    "release",        "encode",  "decode", "logits",    "add",      "all_to_all",      "push",       "pull",
    "broadcast",      "reduce"};
constexpr std::string_view kLanes[] = {"compute", "gather",   "reduce", "activations", "peer-in", "peer-out",
                                       "copy-in", "copy-out", "host",   "io",          "update"};
constexpr std::string_view kCodecs[] = {"plain", "bf16", "int8", "int4", "topk"};
constexpr std::string_view kTiers[] = {"device", "host", "nvme"};
constexpr std::array<std::string_view, 3> kDimensions = {"", ":heads", ":experts"};  // after the axis of a shard

struct ValueSpelling {
  std::string_view prefix, plural;
  bool indexed, per_micro_batch;
  Tier tier = Tier::kDevice;  // tier that names leave out
};
constexpr ValueSpelling kValues[] = {
    {"w", "weights", true, false},
    {"g", "gradients", true, false},
    {"s", "states", true, false},
    {"x", "activations", true, true},
    {"dx", "activation gradients", true, true},
    {"graph", "graphs", true, true},
    {"loss", "losses", false, true, Tier::kHost},
    {"norm", "norms", true, false, Tier::kHost},
    {"factor", "factors", false, false, Tier::kHost},
    {"target", "targets", false, true},
    {"pending", "pending gradients", true, true},
    {"cache", "caches", true, false},
    {"logits", "logits", false, true},
    {"e", "residuals", true, false},
    {"p", "pushed gradients", true, false, Tier::kHost},
    {"routing", "routings", true, true},
};

template <typename Enum, size_t n>
std::optional<Enum> find(const std::string_view (&names)[n], std::string_view text) {
  for (size_t i = 0; i < n; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// Removes a number from the front of text; nothing if there is none.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || number < 0 || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return number;
}

Tier usual_tier(ValueKind kind) { return kValues[static_cast<size_t>(kind)].tier; }

// Holds a part of a value's name: ".name" or ".name(axis)".
struct Suffix {
  std::string_view name, axis;
};

// Removes a suffix from the front of text; nothing if text begins otherwise.
std::optional<Suffix> take_suffix(std::string_view& text) {
  if (text.empty() || text[0] != '.') return std::nullopt;
  const size_t end = text.find_first_of(".(", 1);
  Suffix out{text.substr(1, end == std::string_view::npos ? end : end - 1), {}};
  size_t taken = std::min(end, text.size());
  if (end != std::string_view::npos && text[end] == '(') {
    const size_t close = text.find(')', end);
    if (close == std::string_view::npos) return std::nullopt;
    out.axis = text.substr(end + 1, close - end - 1);
    taken = close + 1;
  }
  text.remove_prefix(taken);
  return out;
}

void append(std::string& out, const std::string& word) { out += (out.empty() ? "" : " ") + word; }

}  // namespace

std::string_view op_name(OpKind kind) { return kOps[static_cast<size_t>(kind)]; }
std::string_view lane_name(Lane lane) { return kLanes[static_cast<size_t>(lane)]; }
std::string_view codec_name(Codec codec) { return kCodecs[static_cast<size_t>(codec)]; }
std::string_view tier_name(Tier tier) { return kTiers[static_cast<size_t>(tier)]; }
std::string_view kind_name(ValueKind kind) { return kValues[static_cast<size_t>(kind)].plural; }

std::string value_name(const Mesh& mesh, const Value& value) {
  const ValueSpelling& spelling = kValues[static_cast<size_t>(value.kind)];
  std::string text(spelling.prefix);
  if (spelling.indexed) text += std::to_string(value.index);
  if (value.tensor > 0) text += ":" + std::to_string(value.tensor);
  if (value.micro_batch >= 0) text += "." + std::to_string(value.micro_batch);
  for (int axis = 0; axis < kMaxAxes; ++axis) {
    if (value.placement.is_shard(axis)) {
      const auto dimension = static_cast<size_t>(value.placement.dimension(axis));
      text += ".shard(" + axis_name(mesh, axis) + std::string(kDimensions[dimension]) + ")";
    }
    if (value.placement.is_partial(axis)) text += ".partial(" + axis_name(mesh, axis) + ")";
    if (value.placement.is_owned(axis)) text += ".owned(" + axis_name(mesh, axis) + ")";
  }
  if (value.codec != Codec::kPlain) text += "." + std::string(codec_name(value.codec));
  return value.tier == usual_tier(value.kind) ? text : text + "." + std::string(tier_name(value.tier));
}

std::string axis_name(const Mesh& mesh, int axis) {
  const bool known = axis >= 0 && axis < static_cast<int>(mesh.axes.size());
  return known ? mesh.axes[static_cast<size_t>(axis)].name : "axis" + std::to_string(axis);
}

std::optional<OpKind> parse_op_kind(std::string_view text) { return find<OpKind>(kOps, text); }
std::optional<Codec> parse_codec(std::string_view text) { return find<Codec>(kCodecs, text); }
std::optional<Lane> parse_lane(std::string_view text) { return find<Lane>(kLanes, text); }
std::optional<Tier> parse_tier(std::string_view text) { return find<Tier>(kTiers, text); }

std::optional<Value> parse_value(const Mesh& mesh, std::string_view text) {
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
  const bool has_pieces =
      value.kind == ValueKind::kWeight || value.kind == ValueKind::kGradient || value.kind == ValueKind::kState;
  const bool numbers_tensors = value.kind == ValueKind::kActivation || value.kind == ValueKind::kActivationGradient;
  if ((numbers_tensors || has_pieces) && rest.size() > 1 && rest[0] == ':') {
    rest.remove_prefix(1);
    const auto tensor = take_number(rest);
    if (!tensor) return std::nullopt;
    value.tensor = *tensor;
  }
  if (spelling->per_micro_batch) {
    if (rest.size() < 2 || rest[0] != '.') return std::nullopt;
    rest.remove_prefix(1);
    const auto micro_batch = take_number(rest);
    if (!micro_batch) return std::nullopt;
    value.micro_batch = *micro_batch;
  }
  value.tier = usual_tier(value.kind);
  while (!rest.empty()) {
    const auto suffix = take_suffix(rest);
    if (!suffix) return std::nullopt;
    if (suffix->name == "shard" || suffix->name == "partial" || suffix->name == "owned") {
      Dimension by = Dimension::kRows;
      for (const Dimension dimension : {Dimension::kHeads, Dimension::kExperts}) {
        const std::string_view suffix_of_axis = kDimensions[static_cast<size_t>(dimension)];
        if (suffix->name == "shard" && suffix->axis.ends_with(suffix_of_axis)) by = dimension;
      }
      const size_t name_length = suffix->axis.size() - kDimensions[static_cast<size_t>(by)].size();
      const int axis = mesh.find(suffix->axis.substr(0, name_length));
      if (axis == kNoAxis || axis >= kMaxAxes) return std::nullopt;
      value.placement = suffix->name == "partial" ? value.placement.partial_on(axis)
                        : suffix->name == "owned" ? value.placement.owned_on(axis)
                                                  : value.placement.shard_on(axis, by);
    } else if (const auto codec = find<Codec>(kCodecs, suffix->name)) {
      value.codec = *codec;
    } else if (const auto tier = parse_tier(suffix->name)) {
      value.tier = *tier;
    } else {
      return std::nullopt;
    }
  }
  if (value_name(mesh, value) != text) return std::nullopt;  // refuses leading zeros and axes in another order
  return value;
}

std::string subject(const Program& step, const Op& op) {
  std::string out;
  if (op.block >= 0) append(out, "block" + std::to_string(op.block));
  if (op.micro_batch >= 0) append(out, "mb" + std::to_string(op.micro_batch));
  if (op.kind == OpKind::kRelease || op.kind == OpKind::kFetch || op.kind == OpKind::kEvict) {
    for (const Value& value : op.writes) append(out, value_name(step.mesh, value));
  } else if (op.block < 0) {  // names groups without placement and tier: "w7"
    const std::vector<Value> values = op.kind == OpKind::kPush ? op.reads
                                      : is_rooted(op)          ? moved_values(op)
                                                               : op.writes;
    for (const Value& value : values) {
      if (value.kind == ValueKind::kState || value.kind == ValueKind::kResidual) continue;
      append(out, value_name(step.mesh, {value.kind, value.index, value.micro_batch, kWhole, Codec::kPlain,
                                         usual_tier(value.kind), value.tensor}));
    }
  }
  if (op.parts > 1) append(out, "part " + std::to_string(op.part) + " of " + std::to_string(op.parts));
  if (op.axis != kNoAxis) append(out, "on " + axis_name(step.mesh, op.axis));
  if (op.peer >= 0)
    append(out,
           (op.kind == OpKind::kReceive || op.kind == OpKind::kBroadcast ? "from " : "to ") + std::to_string(op.peer));
  if (op.servers > 0) append(out, "at " + std::to_string(op.servers) + (op.servers == 1 ? " server" : " servers"));
  if (op.staleness == kNoBound) append(out, "without bound");
  if (op.staleness > 0) append(out, "within " + std::to_string(op.staleness));
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
    const bool is_product =
        a.factors.size() > 1 || a.name.find('*') != std::string::npos || a.name == "local" || a.name == "hosts";
    if (is_product || !a.members.empty()) continue;
    place +=
        (place.empty() ? "" : ", ") + a.name + " " + std::to_string(step.mesh.index(static_cast<int>(axis), step.rank));
  }
  return "rank " + std::to_string(step.rank) + (place.empty() ? "" : " (" + place + ")");
}

namespace {
Value value_of(ValueKind kind, int index, int micro_batch, Placement placement = kWhole) {
  return {kind, index, micro_batch, placement, Codec::kPlain, usual_tier(kind)};
}
}  // namespace

Value weight(int group, Placement placement) { return value_of(ValueKind::kWeight, group, -1, placement); }
Value gradient(int group, Placement placement) { return value_of(ValueKind::kGradient, group, -1, placement); }
Value state(int group, Placement placement) { return value_of(ValueKind::kState, group, -1, placement); }
Value activation(spec::TensorId tensor, int micro_batch) {
  Value value = value_of(ValueKind::kActivation, tensor.producer, micro_batch);
  value.tensor = tensor.tensor;
  return value;
}
Value activation_gradient(spec::TensorId tensor, int micro_batch) {
  Value value = activation(tensor, micro_batch);
  value.kind = ValueKind::kActivationGradient;
  return value;
}
spec::TensorId tensor_of(const Value& value) { return {value.index, value.tensor}; }
Value graph(int block, int micro_batch) { return value_of(ValueKind::kGraph, block, micro_batch); }
Value pending(int block, int micro_batch) { return value_of(ValueKind::kPending, block, micro_batch); }
Value target(int micro_batch) { return value_of(ValueKind::kTarget, 0, micro_batch); }
Value loss(int micro_batch) { return value_of(ValueKind::kLoss, 0, micro_batch); }
Value norm(int group) { return value_of(ValueKind::kNorm, group, -1); }
Value factor() { return value_of(ValueKind::kFactor, 0, -1); }
Value cache(int block) { return value_of(ValueKind::kCache, block, -1); }
Value residual(int group) { return value_of(ValueKind::kResidual, group, -1); }
Value pushed(int group) { return value_of(ValueKind::kPushed, group, -1); }
Value routing(int block, int micro_batch) { return value_of(ValueKind::kRouting, block, micro_batch); }
Value logits(int micro_batch) { return value_of(ValueKind::kLogits, 0, micro_batch); }

Value placed(Value value, Placement placement) {
  value.placement = placement;
  return value;
}

Value in_codec(Value value, Codec codec) {
  value.codec = codec;
  return value;
}

Value in_tier(Value value, Tier tier) {
  value.tier = tier;
  return value;
}

}  // namespace herd::program
