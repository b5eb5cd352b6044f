// A directory of the real file system that lives as long as the object.
#pragma once

#include <string>

namespace trainctl::test {

class TemporaryDirectory {
  public:
    TemporaryDirectory();   // under $TMPDIR or /tmp
    ~TemporaryDirectory();  // removes it with all contents
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

}  // namespace trainctl::test
