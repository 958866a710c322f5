// An error that every rank of the job throws with the same words, since all looked at the same values: rank 0 reports
// it for all of them.
#pragma once

#include "herd/base/error.h"

namespace herd::train {

class SharedError final : public Error {
 public:
  using Error::Error;
};

}  // namespace herd::train
