#include "herd/param_server/encoded_push.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd::param_server {
namespace {

using kernels::CodecKind;
using kernels::ElementRange;

constexpr int64_t kListed = 8;  // bytes of a value and its index

bool is_list(const Key& key) { return key.codec->kind == CodecKind::kTopK; }

// Calls take(range) for each range of exact elements of a piece, counted from the key's start.
template <class Take>
void for_each_exact(const Key& key, ElementRange piece, const Take& take) {
  for (const ElementRange& range : key.exact) {
    const ElementRange inside{std::max(range.begin, piece.begin), std::min(range.end, piece.end)};
    if (inside.size() > 0) take(inside);
  }
}

int64_t exact_bytes(const Key& key, ElementRange piece) {
  int64_t elements = 0;
  for_each_exact(key, piece, [&](ElementRange range) { elements += range.size(); });
  return elements * static_cast<int64_t>(sizeof(float));
}

// Writes the exact elements of a piece, and returns the place after them.
std::byte* put_exact(const Key& key, ElementRange piece, std::span<const float> gradient, std::byte* to) {
  for_each_exact(key, piece, [&](ElementRange range) {
    const size_t bytes = static_cast<size_t>(range.size()) * sizeof(float);
    std::memcpy(to, gradient.data() + range.begin, bytes);
    to += bytes;
  });
  return to;
}

}  // namespace

int64_t most_message_bytes(const KeyTable& keys, int64_t index, int num_servers) {
  const Key& key = keys.at(index);
  int64_t bytes = exact_bytes(key, {0, key.elements});
  if (is_list(key)) return bytes + encoded_bytes(*key.codec, key.elements);
  for (int server = 0; server < num_servers; ++server)
    bytes += encoded_bytes(*key.codec, keys.piece(index, server, num_servers).size());
  return bytes;
}

PushMessages cut_message(const KeyTable& keys, int64_t index, int num_servers, std::span<const std::byte> encoded) {
  const Key& key = keys.at(index);
  const auto bytes_before = [&](int64_t elements) { return static_cast<size_t>(encoded_bytes(*key.codec, elements)); };
  PushMessages messages;
  for (int server = 0; server < num_servers; ++server) {
    const ElementRange piece = keys.piece(index, server, num_servers);
    messages.push_back(encoded.subspan(bytes_before(piece.begin), bytes_before(piece.size())));
  }
  return messages;
}

EncodedPush::EncodedPush(const KeyTable& keys, int64_t index, int num_servers, Memory memory)
    : keys_(keys), index_(index), num_servers_(num_servers), memory_(memory) {
  const Key& key = keys.at(index);
  HERD_CHECK(key.codec && static_cast<int64_t>(memory.residual.size()) == key.elements &&
                 static_cast<int64_t>(memory.message.size()) == most_message_bytes(keys, index, num_servers),
             "memory of an encoded push");
}

kernels::EncodingLoss EncodedPush::encode(std::span<const float> gradient) {
  const Key& key = keys_.at(index_);
  HERD_CHECK(static_cast<int64_t>(gradient.size()) == key.elements, "the gradient of a key");
  messages_.clear();
  if (is_list(key)) {
    std::vector<std::byte> list(static_cast<size_t>(encoded_bytes(*key.codec, key.elements)));
    const kernels::EncodedPart whole{{0, key.elements}, list.data()};
    const auto loss = kernels::encode_with_feedback(*key.codec, gradient, key.exact, {&whole, 1}, memory_.residual);
    lay_out(gradient, list);
    return loss;
  }
  std::vector<kernels::EncodedPart> parts;
  std::byte* to = memory_.message.data();
  for (int server = 0; server < num_servers_; ++server) {
    const ElementRange piece = keys_.piece(index_, server, num_servers_);
    std::byte* const begin = to;
    parts.push_back({piece, to});
    to = put_exact(key, piece, gradient, to + encoded_bytes(*key.codec, piece.size()));
    messages_.emplace_back(begin, to);
  }
  return kernels::encode_with_feedback(*key.codec, gradient, key.exact, parts, memory_.residual);
}

// Gives each server its part of the list of the whole key, whose indices ascend.
void EncodedPush::lay_out(std::span<const float> gradient, std::span<const std::byte> list) {
  const Key& key = keys_.at(index_);
  const size_t kept = list.size() / kListed;
  const auto index_of = [&](size_t i) {
    uint32_t index;
    std::memcpy(&index, list.data() + sizeof(float) * kept + sizeof(index) * i, sizeof(index));
    return index;
  };
  std::byte* to = memory_.message.data();
  size_t first = 0;
  for (int server = 0; server < num_servers_; ++server) {
    const ElementRange piece = keys_.piece(index_, server, num_servers_);
    std::byte* const begin = to;
    size_t last = first;
    while (last < kept && index_of(last) < piece.end) ++last;
    std::memcpy(to, list.data() + sizeof(float) * first, sizeof(float) * (last - first));
    to += sizeof(float) * (last - first);
    for (; first < last; ++first) {
      const auto within = static_cast<uint32_t>(index_of(first) - piece.begin);
      std::memcpy(to, &within, sizeof(within));
      to += sizeof(within);
    }
    to = put_exact(key, piece, gradient, to);
    messages_.emplace_back(begin, to);
  }
}

void check_message(const Key& key, ElementRange piece, int64_t bytes) {
  const auto refuse = [&](const std::string& takes) {
    throw Error(Code::kBadConfig, "an encoded push has " + std::to_string(bytes) + " bytes for " +
                                      std::to_string(piece.size()) + " elements of a key, which takes " + takes);
  };
  if (!key.codec) refuse("no encoded pushes\n  fix: a codec in the key table");
  const std::string codec(kernels::codec_row(key.codec->kind).name);
  const int64_t exact = exact_bytes(key, piece), most = exact + encoded_bytes(*key.codec, key.elements);
  if (is_list(key)) {
    if (bytes >= exact && bytes <= most && (bytes - exact) % kListed == 0) return;
    refuse(std::to_string(exact) + " to " + std::to_string(most) + " bytes in " + codec);
  }
  const int64_t expected = exact + encoded_bytes(*key.codec, piece.size());
  if (bytes != expected) refuse(std::to_string(expected) + " bytes in " + codec);
}

void decode_message(const Key& key, ElementRange piece, std::span<const std::byte> message, float* gradient) {
  check_message(key, piece, static_cast<int64_t>(message.size()));
  const int64_t encoded = static_cast<int64_t>(message.size()) - exact_bytes(key, piece);
  if (is_list(key)) {
    std::fill_n(gradient, piece.size(), 0.0f);
    kernels::add_list(message.data(), encoded / kListed, piece.size(), 1, gradient);
  } else {
    kernels::decode(*key.codec, message.data(), piece.size(), gradient);
  }
  const std::byte* exact = message.data() + encoded;
  for_each_exact(key, piece, [&](ElementRange range) {
    const size_t bytes = static_cast<size_t>(range.size()) * sizeof(float);
    std::memcpy(gradient + (range.begin - piece.begin), exact, bytes);
    exact += bytes;
  });
}

}  // namespace herd::param_server
