// Counts the inputs that a target's parser accepts, empty ones left out. The driver fails a corpus of which it accepts
// none: those files are of an older format, and no mutation of them comes past its first line.
#pragma once

#include <cstdint>

inline int64_t num_accepted = 0;
