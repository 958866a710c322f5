// Sums gradients in a codec: encodes them before a reduction between data ranks, and decodes them before anything else
// works on them.
//   bf16   A rank sends half of what fp32 sends: 2(n-1)/n * 2 bytes for each element among n ranks. Each term and each
//          sum is rounded to 8 significant bits, an error of at most 2^-8 of it. Within a host, sums are made in fp32
//          and rounded once; a sum that passes several hosts is rounded on each. bf16 has the exponents of fp32, so no
//          scale is needed. A rank holds 2 bytes more for each parameter. Encoding and decoding read and write 6 bytes
//          for each. A sum over the copies of a shard, which follows the first sum, adds encoded gradients.
//   int8, int4, topk
//          kernels/encoded_parts.h has the bytes that a rank sends and holds, comm/encoded_sum.h the sum. What encoding
//          loses is added to the next step's gradients (error feedback): for each parameter 4 bytes for topk and
//          4 + 4/n for the others. Vectors, such as norms and biases, and excluded parameters are summed in fp32.
//          With parameter servers a rank encodes its gradient for them once (param_server/encoded_push.h): the servers
//          sum what they decode, and no sum is encoded. So a rank keeps 4 bytes for each parameter.
//          Where ranks compute on a device, all of this is the host's: each gradient is copied there before it is
//          encoded, and its sum is copied back once it is decoded.
// Gradients are decoded before the first op, other than a sum as above, that reads one. So reductions stay beside the
// backward ops that follow them.
// Source: torch.distributed's bf16_compress_hook has the arithmetic of bf16; comm/encoded_sum.h names the others'.
// Threads: pure.
#pragma once

#include <vector>

#include "herd/strategies/gradient_codec.h"
#include "herd/strategies/technique.h"

namespace herd::strategies {

class Compression final : public Strategy {
 public:
  // `groups` are those of the model, which `tp` tensor-parallel ranks share. `num_servers` get pushes; 0: ranks sum.
  Compression(GradientCodec codec, std::vector<spec::ParameterGroupShape> groups, int tp, int num_servers = 0);
  std::string name() const override;
  // REQUIRES fp32 gradients that are reduced once a step; with residuals, gradients that are reduced whole.
  program::Program rewrite(program::Program step) const override;

 private:
  GradientCodec codec_;
  std::vector<spec::ParameterGroupShape> groups_;
  int tp_, num_servers_;
};

// Returns the row of strategy.compression. With ZeRO-2 and 3 it sums shards of int8 and int4 (encoded_shards.h). Else
// it throws kBadConfig where gradients have 16 bits already, where ZeRO-2 or 3 adds to sums after each micro-batch,
// and, of codecs with residuals, with ZeRO-1 and with fp16.
Technique compression_row();

}  // namespace herd::strategies
