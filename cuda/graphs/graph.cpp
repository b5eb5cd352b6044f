#include "cuda/graphs/graph.h"

#include <utility>

#include "cuda/check.h"

namespace trainctl::cuda {
namespace {

// What was captured. Ends the capture in any case: a stream left capturing takes no other work.
class Capture {
  public:
    explicit Capture(cudaStream_t stream) : stream_(stream) {
        // Other threads of the process may go on as they like.
        check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    }
    ~Capture() {
        if (!ended_) static_cast<void>(cudaStreamEndCapture(stream_, &graph_));
        if (graph_ != nullptr) static_cast<void>(cudaGraphDestroy(graph_));
        static_cast<void>(cudaGetLastError());  // of a capture that was given up, or a graph refused
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    cudaGraph_t end() {
        ended_ = true;
        check(cudaStreamEndCapture(stream_, &graph_), "cudaStreamEndCapture");
        return graph_;
    }

  private:
    cudaStream_t stream_;
    cudaGraph_t graph_ = nullptr;
    bool ended_ = false;
};

}  // namespace

std::unique_ptr<Graph> Graph::capture(cudaStream_t stream, const std::function<void()>& issue,
                                      std::string& refusal) {
    Capture capture(stream);
    issue();
    cudaGraphExec_t executable = nullptr;
    cudaError_t state = cudaGraphInstantiate(&executable, capture.end(), 0);
    std::unique_ptr<Graph> graph(state == cudaSuccess ? new Graph(executable) : nullptr);
    if (graph) state = cudaGraphUpload(executable, stream);
    if (state == cudaSuccess) return graph;
    refusal = std::string(cudaGetErrorName(state)) + ": " + cudaGetErrorString(state);
    return nullptr;
}

Graph::~Graph() { static_cast<void>(cudaGraphExecDestroy(graph_)); }

void Graph::launch(cudaStream_t stream) const { check(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch"); }

}  // namespace trainctl::cuda
