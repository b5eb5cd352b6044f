#include "checkpoint/staged_read.h"

#include <algorithm>

#include "trainctl/base/error.h"
#include "trainctl/checkpoint/state_hash.h"

namespace trainctl {
namespace {

constexpr std::size_t grain = 64;  // bytes: parts begin at cache lines

// Walks through the wanted slices with as much as fits into the staging memory at a time.
class StagedParts {
  public:
    StagedParts(std::span<const NamedSlice> wanted, std::span<std::byte> staging)
        : wanted_(wanted), staging_(staging) {
        invariant(staging.size() >= grain, "too little staging memory to load through");
    }

    // False: nothing is left.
    bool next() {
        slices_.clear();
        parts_.clear();
        for (std::size_t used = 0; slice_ < wanted_.size() && used < staging_.size();) {
            const NamedSlice& whole = wanted_[slice_];
            const std::size_t element = dtype_size(whole.view.dtype);
            const auto room = static_cast<std::int64_t>((staging_.size() - used) / element);
            const std::int64_t count = std::min(whole.flat.size() - element_, room);
            if (count > 0) {
                add(whole, count, staging_.subspan(used, static_cast<std::size_t>(count) * element));
                used += (static_cast<std::size_t>(count) * element + grain - 1) / grain * grain;
            }
            if (element_ < whole.flat.size()) break;
            ++slice_;
            element_ = 0;
        }
        return !parts_.empty();
    }

    [[nodiscard]] const std::vector<NamedSlice>& slices() const { return slices_; }
    [[nodiscard]] const std::vector<StagedPart>& parts() const { return parts_; }

  private:
    void add(const NamedSlice& whole, std::int64_t count, std::span<std::byte> bytes) {
        NamedSlice part = whole;
        part.flat = {whole.flat.begin + element_, whole.flat.begin + element_ + count};
        part.view = {bytes.data(), Shape{count}, whole.view.dtype};
        parts_.push_back(
            {slice_, static_cast<std::uint64_t>(element_) * dtype_size(whole.view.dtype), bytes});
        slices_.push_back(std::move(part));
        element_ += count;
    }

    std::span<const NamedSlice> wanted_;
    std::span<std::byte> staging_;
    std::size_t slice_ = 0;     // of wanted_: the next to be staged
    std::int64_t element_ = 0;  // of that slice's range
    std::vector<NamedSlice> slices_;
    std::vector<StagedPart> parts_;
};

}  // namespace

std::vector<std::uint64_t> read_wanted(std::span<const NamedSlice> wanted, const LoadThrough& through,
                                       const std::function<void(std::span<const NamedSlice>)>& read) {
    std::vector<std::uint64_t> hashes(wanted.size(), 0);
    if (through.staging.empty()) {
        read(wanted);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            if (wanted[i].flat.size() > 0) hashes[i] = slice_hash(wanted[i]);
        }
        return hashes;
    }
    StagedParts staged(wanted, through.staging);
    while (staged.next()) {
        read(staged.slices());
        // The hash of a slice is the sum of those of its parts.
        for (std::size_t i = 0; i < staged.parts().size(); ++i)
            hashes[staged.parts()[i].slice] += slice_hash(staged.slices()[i]);
        through.take(staged.parts());
    }
    return hashes;
}

}  // namespace trainctl
