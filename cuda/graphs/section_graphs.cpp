#include "cuda/graphs/section_graphs.h"

#include <algorithm>
#include <utility>

#include "cuda/check.h"
#include "trainctl/base/hash.h"

namespace trainctl::cuda {
namespace {

constexpr std::size_t most_hashes = 16384;  // of sections that were seen once: several steps of a deep model

// A graph is dropped for another one only when so many sections, per graph kept, went by without it. Else
// sections that come in turn, one more than there is room for, would push each other out, and be captured
// every time.
constexpr std::uint64_t long_unused = 4;

}  // namespace

std::size_t SectionGraphs::BytesHash::operator()(const Bytes& bytes) const { return hash64(bytes); }

void SectionGraphs::Section::issue() const {
    for (const std::function<void()>& call : calls) call();
}

void SectionGraphs::Section::clear() {
    bytes.clear();
    calls.clear();
}

SectionGraphs::SectionGraphs(cudaStream_t stream, std::size_t most_graphs)
    : stream_(stream), most_graphs_(most_graphs), seen_(most_hashes) {}

SectionGraphs::~SectionGraphs() {
    if (!graphs_.empty()) static_cast<void>(cudaStreamSynchronize(stream_));  // they may be running
}

void SectionGraphs::gather(std::span<const std::byte> call, std::function<void()> issue) {
    gathered_.bytes.insert(gathered_.bytes.end(), call.begin(), call.end());
    gathered_.calls.push_back(std::move(issue));
}

void SectionGraphs::flush() {
    if (failure_) std::exchange(failure_, nullptr)->raise();
    if (gathered_.calls.empty()) return;
    // Set aside first: issuing asks for the stream's handle, and that flushes.
    std::swap(gathered_, flushed_);
    try {
        run(flushed_);
    } catch (...) {
        flushed_.clear();
        throw;
    }
    flushed_.clear();
}

void SectionGraphs::flush_and_tell_later() noexcept {
    try {
        flush();
    } catch (...) {
        failure_ = CapturedError::current();
    }
}

void SectionGraphs::run(const Section& section) {
    ++sections_;
    if (section.calls.size() >= fewest_calls) {
        auto found = graphs_.find(section.bytes);
        if (found == graphs_.end() && seen_.put(hash64(section.bytes)) && make_room()) {
            auto graph = std::make_unique<Graph>(stream_, [&section] { section.issue(); });
            found = graphs_.emplace(section.bytes, Kept{std::move(graph)}).first;
            ++use_.captured;
        }
        if (found != graphs_.end()) {
            found->second.graph->launch(stream_);
            found->second.used = sections_;
            ++use_.replayed;
            return;
        }
    }
    section.issue();
    ++use_.issued;
}

bool SectionGraphs::make_room() {
    if (graphs_.size() < most_graphs_) return true;
    const auto oldest = std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
        return a.second.used < b.second.used;
    });
    if (oldest == graphs_.end() || sections_ - oldest->second.used <= long_unused * most_graphs_)
        return false;
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");  // it may be running
    graphs_.erase(oldest);
    return true;
}

}  // namespace trainctl::cuda
