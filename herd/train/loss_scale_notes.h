// Writes and reads the loss scale of an fp16 run in a checkpoint's notes. Threads: any.
#pragma once

#include <map>
#include <string>

#include "herd/optim/loss_scale.h"

namespace herd::train {

using Notes = std::map<std::string, std::string>;

void note_loss_scale(const optim::LossScale& scale, Notes& notes);

// Returns the scale that `notes` state; a fresh one where they have none, since the run had another precision. Throws
// kCorruptFile with the checkpoint for a note that is no such number.
optim::LossScale loss_scale_of(const Notes& notes, const std::string& checkpoint);

}  // namespace herd::train
