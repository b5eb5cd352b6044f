// One writer per output: a lock of the kernel's, so that it ends with its process however that ends.
#pragma once

#include <string>

namespace trainctl {

// Holds `PREFIX.lock` from construction to destruction, and removes it then. Another living process that
// holds it is Error(Exit::Usage). A file system without locks locks nothing. What a killed process left is
// taken over.
class OutputLock {
  public:
    explicit OutputLock(const std::string& prefix);
    ~OutputLock();
    OutputLock(const OutputLock&) = delete;
    OutputLock& operator=(const OutputLock&) = delete;

  private:
    std::string path_;
    int descriptor_ = -1;
};

}  // namespace trainctl
