#include "trainctl/data/open_files.h"

#include <algorithm>

namespace trainctl {

std::shared_ptr<OpenFiles::Entry> OpenFiles::entry(const std::string& path) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(recent_.begin(), recent_.end(),
                                    [&](const auto& candidate) { return candidate->path == path; });
    if (found != recent_.end()) {
        recent_.splice(recent_.begin(), recent_, found);
        return recent_.front();
    }
    auto opened = std::make_shared<Entry>();
    opened->path = path;
    opened->file = files_.open(path, Open::Read);
    recent_.push_front(opened);
    // A file dropped here while another thread reads it stays open until that read is over.
    if (recent_.size() > limit_) recent_.pop_back();
    return opened;
}

void OpenFiles::read_at(const std::string& path, std::uint64_t offset, std::span<std::byte> into) {
    const std::shared_ptr<Entry> opened = entry(path);
    const std::lock_guard turn(opened->turn);
    opened->file->read_at(offset, into);
}

std::size_t OpenFiles::open_now() const {
    const std::lock_guard lock(mutex_);
    return recent_.size();
}

}  // namespace trainctl
