// Defines how a checkpoint's notes state the loss scale of an fp16 run. Threads: any.
#pragma once

#include <map>
#include <string>

#include "herd/optim/loss_scale.h"

namespace herd::train {

using Notes = std::map<std::string, std::string>;

void note_loss_scale(const optim::LossScale& scale, Notes& notes);

// What `notes` state; a fresh one where they say nothing: the run was of another precision. Throws kCorruptFile, naming
// the checkpoint, for what is no number of that kind.
optim::LossScale loss_scale_of(const Notes& notes, const std::string& checkpoint);

}  // namespace herd::train
