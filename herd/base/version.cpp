#include "herd/base/version.h"

namespace herd {

const char* version() { return HERD_VERSION; }

}  // namespace herd
