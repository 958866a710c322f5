// Lets a Trainer train a chain of own blocks (herd/chain) on own data. Threads: as ModelSource.
#pragma once

#include <cstdint>
#include <memory>

#include "herd/chain/chain_data.h"
#include "herd/chain/model_chain.h"
#include "herd/train/model_source.h"

namespace herd::train {

// Its complete() traces the chain on rank 0, and shares the table. It throws kBadConfig for a run file that describes a
// model in [model], other than what is frozen or where weights come from, or that asks for tensor or context parallel;
// and as trace_chain(). Its samples throw kBadConfig for a batch that lacks a tensor that the chain reads, has other
// rows than were asked for, or tokens that ChainData::tokens does not state.
std::shared_ptr<const ModelSource> chain_source(const Chain& chain, const ChainData& data);

// Throws kBadConfig where the losses of a step that counted are others than its weight was made for: then Batch::count
// and the chain's last block disagree, and gradients were scaled by another number than the loss.
void check_counted(int64_t counted, double weight);

}  // namespace herd::train
