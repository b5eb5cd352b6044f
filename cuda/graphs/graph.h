// A graph of what a stream was asked to do, ready to be launched as one.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>

namespace trainctl::cuda {

// Thread rule: the rank's compute thread.
class Graph {
  public:
    // Captures what `issue` issues to the stream, and nothing of it runs. What `issue` throws is thrown, and
    // the stream captures no more. nullptr, with what CUDA says in `refusal`, where no graph can be made of
    // it: for want of memory, mostly. Its launches need none any more.
    static std::unique_ptr<Graph> capture(cudaStream_t stream, const std::function<void()>& issue,
                                          std::string& refusal);
    // The graph must not be running.
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    // Asynchronous.
    void launch(cudaStream_t stream) const;

  private:
    explicit Graph(cudaGraphExec_t graph) : graph_(graph) {}

    cudaGraphExec_t graph_ = nullptr;
};

}  // namespace trainctl::cuda
