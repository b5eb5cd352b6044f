#include "support/gated_file_system.h"

namespace trainctl::test {

void GatedFileSystem::close_gate(const std::string& part) {
    const std::scoped_lock lock(mutex_);
    held_ = part;
    arrived_ = 0;
}

void GatedFileSystem::open_gate() {
    const std::scoped_lock lock(mutex_);
    held_.clear();
    changed_.notify_all();
}

void GatedFileSystem::await_arrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return arrived_ > 0; });
}

bool GatedFileSystem::somebody_waits() {
    const std::scoped_lock lock(mutex_);
    return arrived_ > 0 && !held_.empty();
}

std::unique_ptr<File> GatedFileSystem::open(const std::string& path, Open mode) {
    if (mode == Open::CreateNew) {
        std::unique_lock lock(mutex_);
        const auto may_pass = [&] { return held_.empty() || path.find(held_) == std::string::npos; };
        if (!may_pass()) {
            ++arrived_;
            changed_.notify_all();
            changed_.wait(lock, may_pass);
        }
    }
    return files_.open(path, mode);
}

}  // namespace trainctl::test
