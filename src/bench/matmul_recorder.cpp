#include "trainctl/bench/matmul_recorder.h"

#include <algorithm>
#include <utility>

namespace trainctl {
namespace {

struct Operands {
    Shape a;  // the activation side: x, or dy
    Shape b;  // the weight side: w, or x of a weight gradient
    Shape out;
};

Operands operands(const MatmulCall& call) {
    switch (call.kind) {
        case MatmulKind::Forward:
            return {Shape{call.m, call.k}, Shape{call.n, call.k}, Shape{call.m, call.n}};
        case MatmulKind::BackwardInput:
            return {Shape{call.m, call.n}, Shape{call.n, call.k}, Shape{call.m, call.k}};
        case MatmulKind::BackwardWeight:
            return {Shape{call.m, call.n}, Shape{call.m, call.k}, Shape{call.n, call.k}};
    }
    return {};
}

std::size_t bytes_of(const Shape& shape, DType dtype) {
    return static_cast<std::size_t>(shape.elements()) * dtype_size(dtype);
}

}  // namespace

std::vector<MatmulCall> MatmulRecorder::stop() {
    recording_ = false;
    return std::exchange(calls_, {});
}

void MatmulRecorder::forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                             TensorView scratch) {
    if (recording_) {
        calls_.push_back({MatmulKind::Forward, x.shape[0], w.shape[0], w.shape[1], x.dtype, y.dtype,
                          Into::Overwrite, !bias.empty()});
    }
    target_.forward(stream, y, x, w, bias, scratch);
}

void MatmulRecorder::backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                                    TensorView scratch) {
    if (recording_) {
        calls_.push_back({MatmulKind::BackwardInput, dy.shape[0], w.shape[0], w.shape[1], dy.dtype, dx.dtype,
                          into, false});
    }
    target_.backward_input(stream, dx, dy, w, into, scratch);
}

void MatmulRecorder::backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                                     TensorView scratch) {
    if (recording_) {
        calls_.push_back({MatmulKind::BackwardWeight, dy.shape[0], dy.shape[1], x.shape[1], dy.dtype,
                          dw.dtype, into, false});
    }
    target_.backward_weight(stream, dw, dy, x, into, scratch);
}

std::size_t MatmulRecorder::scratch_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                          DType dtype) const {
    return target_.scratch_bytes(kind, m, n, k, dtype);
}

MatmulReplay::MatmulReplay(Device& device, MatmulOps& matmul, std::vector<MatmulCall> calls)
    : matmul_(matmul), calls_(std::move(calls)) {
    // Activations and results of one call are reused by the next ones (they are hot in a model as well); the
    // weight side walks through a buffer as large as all of them, up to a bound far above any cache.
    std::size_t a = 1;
    std::size_t b = 0;
    std::size_t largest_b = 1;
    std::size_t out = 1;
    std::size_t scratch = 1;
    for (const MatmulCall& call : calls_) {
        const Operands shapes = operands(call);
        a = std::max(a, bytes_of(shapes.a, call.input));
        b += bytes_of(shapes.b, call.input);
        largest_b = std::max(largest_b, bytes_of(shapes.b, call.input));
        out = std::max(out, bytes_of(shapes.out, call.output));
        scratch = std::max(scratch, matmul_.scratch_bytes(call.kind, call.m, call.n, call.k, call.input));
    }
    constexpr std::size_t far_above_any_cache = std::size_t{1} << 30U;
    a_ = device.allocate(a, Memory::Device, "bench");
    b_ = device.allocate(std::max(largest_b, std::min(b, far_above_any_cache)), Memory::Device, "bench");
    out_ = device.allocate(out, Memory::Device, "bench");
    scratch_ = device.allocate(scratch, Memory::Device, "bench");
}

double MatmulReplay::flops() const {
    double total = 0.0;
    for (const MatmulCall& call : calls_) total += call.flops();
    return total;
}

void MatmulReplay::run(Stream& stream) {
    std::size_t offset = 0;
    for (const MatmulCall& call : calls_) {
        const Operands shapes = operands(call);
        const std::size_t b_bytes = bytes_of(shapes.b, call.input);
        if (offset + b_bytes > b_.bytes()) offset = 0;
        const TensorView a = a_.view(shapes.a, call.input);
        const TensorView b = b_.view(shapes.b, call.input, offset);
        const TensorView out = out_.view(shapes.out, call.output);
        const TensorView scratch =
            scratch_.view(Shape{static_cast<std::int64_t>(scratch_.bytes())}, DType::U8);
        offset += (b_bytes + 4095) / 4096 * 4096;
        switch (call.kind) {
            case MatmulKind::Forward: {
                const TensorView bias = call.bias ? a_.view(Shape{call.n}, call.input) : TensorView{};
                matmul_.forward(stream, out, a, b, bias, scratch);
                break;
            }
            case MatmulKind::BackwardInput:
                matmul_.backward_input(stream, out, a, b, call.into, scratch);
                break;
            case MatmulKind::BackwardWeight:
                matmul_.backward_weight(stream, out, a, b, call.into, scratch);
                break;
        }
    }
    stream.synchronize();
}

}  // namespace trainctl
