#include "cuda/graphs/section_graphs.h"

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

void SectionGraphs::Section::clear() {
    bytes.clear();
    calls.clear();
}

SectionGraphs::SectionGraphs(cudaStream_t stream, std::size_t most_graphs)
    : stream_(stream), most_graphs_(most_graphs), seen_(most_hashes) {}

SectionGraphs::~SectionGraphs() {
    if (!graphs_.empty()) static_cast<void>(cudaStreamSynchronize(stream_));  // they may be running
}

void SectionGraphs::flush() {
    if (failure_) std::exchange(failure_, nullptr)->raise();
    if (gathered_.calls.size() == 0) return;
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
    if (const Graph* graph = graph_of(section)) {
        graph->launch(stream_);
        ++use_.replayed;
        return;
    }
    section.calls.make_all();
    ++use_.issued;
}

const Graph* SectionGraphs::graph_of(const Section& section) {
    if (section.calls.size() < fewest_calls) return nullptr;
    const std::uint64_t hash = hash64(section.bytes);
    const auto known = known_.find(hash);
    if (known == known_.end()) return seen_.put(hash) ? capture(section, hash) : nullptr;
    const auto kept = known->second;
    if (kept->bytes != section.bytes) return nullptr;
    kept->used = sections_;
    graphs_.splice(graphs_.begin(), graphs_, kept);
    return kept->graph.get();
}

const Graph* SectionGraphs::capture(const Section& section, std::uint64_t hash) {
    if (!use_.refusal.empty() || !make_room()) return nullptr;
    auto graph = Graph::capture(
        stream_, [&section] { section.calls.make_all(); }, use_.refusal);
    if (!graph) return nullptr;
    graphs_.push_front({section.bytes, hash, std::move(graph), sections_});
    known_.emplace(hash, graphs_.begin());
    ++use_.captured;
    return graphs_.front().graph.get();
}

bool SectionGraphs::make_room() {
    if (graphs_.size() < most_graphs_) return true;
    if (graphs_.empty() || sections_ - graphs_.back().used <= long_unused * most_graphs_) return false;
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");  // it may be running
    known_.erase(graphs_.back().hash);
    graphs_.pop_back();
    return true;
}

}  // namespace trainctl::cuda
