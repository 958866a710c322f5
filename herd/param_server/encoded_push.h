// Defines what a worker sends each server where the gradient of a key is encoded (Key::codec):
//   in blocks  [encoded elements of the server's piece] [exact elements of the piece, fp32]
//   top-k      [n values, fp32] [n indices within the piece, 32 bits] [exact elements of the piece, fp32]
// Blocks are those of the whole key, which is cut between them. The elements of top-k are chosen of the whole key, so
// their number in a piece varies. So how many servers there are changes no number of int8, int4, bf16 and top-k; codecs
// with levels choose these for each piece.
// Threads: an EncodedPush by one at a time; functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "herd/kernels/error_feedback.h"
#include "herd/param_server/key_table.h"

namespace herd::param_server {

// By server: what is sent of a push of one key. Empty where a server has no piece of it.
using PushMessages = std::vector<std::span<const std::byte>>;

// Encodes one key's gradients with error feedback.
class EncodedPush {
 public:
  // Memory that the caller owns; it must outlive this.
  struct Memory {
    std::span<float> residual;     // as many elements as the key; zeros at first, and kept from push to push
    std::span<std::byte> message;  // most_message_bytes()
  };
  // REQUIRES a key with a codec. Borrows `keys`, which must outlive this.
  EncodedPush(const KeyTable& keys, int64_t index, int num_servers, Memory memory);

  kernels::EncodingLoss encode(std::span<const float> gradient);
  const PushMessages& messages() const { return messages_; }  // of the last encode(), in the memory

 private:
  void lay_out(std::span<const float> gradient, std::span<const std::byte> list);

  const KeyTable& keys_;
  int64_t index_;
  int num_servers_;
  Memory memory_;
  PushMessages messages_;
};

// Returns the bytes of all messages of a push, at most, and for all codecs but top-k exactly.
int64_t most_message_bytes(const KeyTable& keys, int64_t index, int num_servers);
// Cuts the encoded form of a whole key, where that is the forms of its elements one after the other, as in bf16.
PushMessages cut_message(const KeyTable& keys, int64_t index, int num_servers, std::span<const std::byte> encoded);

// Throws kBadConfig where a message of so many bytes is none of this piece of the key.
void check_message(const Key& key, kernels::ElementRange piece, int64_t bytes);
// Writes the gradient of a piece. Throws as check_message(), and kBug for an index outside the piece.
void decode_message(const Key& key, kernels::ElementRange piece, std::span<const std::byte> message, float* gradient);

}  // namespace herd::param_server

namespace herd {
using param_server::EncodedPush, param_server::PushMessages;
}  // namespace herd
