#include "support/temporary_directory.h"

#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp is POSIX

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "trainctl/base/io_error.h"

namespace trainctl::test {

TemporaryDirectory::TemporaryDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "trainctl-test-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) fail_io("create directory", path_, errno, IoSide::Writing);
}

TemporaryDirectory::~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace trainctl::test
