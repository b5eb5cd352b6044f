// Calls on one stream, gathered into sections; a section that comes again is replayed as a graph.
//
// A graph runs only for a section whose calls are, byte for byte, those it was captured from: the same ops in
// the same order on the same addresses, shapes and settings. So nothing that changes can make a graph wrong;
// it is only not used then. First seen, a section is issued call by call (which also prepares what may not be
// prepared during a capture) and remembered by its hash; seen again, it is captured. Where CUDA refuses to
// make a graph, sections that have none are issued call by call from then on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cuda/graphs/call_bytes.h"
#include "cuda/graphs/call_list.h"
#include "cuda/graphs/graph.h"
#include "cuda/graphs/recent_hashes.h"
#include "trainctl/device/captured_error.h"
#include "trainctl/device/cuda_device.h"

namespace trainctl::cuda {

// Thread rule: the rank's compute thread. The stream outlives it.
class SectionGraphs {
  public:
    // Sections of fewer calls than `fewest_calls` are not worth a graph. At most `most_graphs` are kept.
    explicit SectionGraphs(cudaStream_t stream, std::size_t most_graphs = 512);
    // What was gathered and not flushed is dropped.
    ~SectionGraphs();
    SectionGraphs(const SectionGraphs&) = delete;
    SectionGraphs& operator=(const SectionGraphs&) = delete;

    static constexpr std::size_t fewest_calls = 3;

    // `issue` issues the call; what it refers to stays until then. `depends`: everything the call depends on,
    // the kind of call first.
    template <class Issue, class... Values>
    void gather(const Issue& issue, const Values&... depends) {
        CallBytes(gathered_.bytes).put_all(depends...);
        gathered_.calls.add(issue);
    }
    // Ends the section: hands what was gathered to the stream. Throws what a call throws; the rest of the
    // section is dropped then.
    void flush();

    // The same where nothing may be thrown: the next flush() throws it.
    void flush_and_tell_later() noexcept;

    [[nodiscard]] const CudaGraphUse& use() const { return use_; }

  private:
    using Bytes = std::vector<std::byte>;
    struct Section {
        Bytes bytes;
        CallList calls;

        void clear();
    };
    struct Kept {
        Bytes bytes;
        std::uint64_t hash = 0;  // of them
        std::unique_ptr<Graph> graph;
        std::uint64_t used = 0;  // number of the section that used it last
    };

    void run(const Section& section);
    // The section's graph, made if it is time to; nullptr: there is none.
    const Graph* graph_of(const Section& section);
    const Graph* capture(const Section& section, std::uint64_t hash);
    // Whether there is room for one more graph, after dropping one that has not been used for long.
    bool make_room();

    cudaStream_t stream_;
    std::size_t most_graphs_;
    Section gathered_;
    Section flushed_;         // empty but while it is issued; keeps its memory
    std::list<Kept> graphs_;  // used last first
    std::unordered_map<std::uint64_t, std::list<Kept>::iterator> known_;  // by hash
    RecentHashes seen_;
    std::shared_ptr<const CapturedError> failure_;  // not told yet
    std::uint64_t sections_ = 0;
    CudaGraphUse use_;
};

}  // namespace trainctl::cuda
