// The one precompiled header of herd_torch: torch/torch.h costs 15 to 20 s, so no source includes it by itself.
#pragma once
#include <torch/torch.h>
