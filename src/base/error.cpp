#include "trainctl/base/error.h"

namespace trainctl {

void fail(Exit code, const std::string& what, Where where) { throw Error(code, what, where); }

}  // namespace trainctl
