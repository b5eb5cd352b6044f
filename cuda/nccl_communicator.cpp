#include "cuda/nccl_communicator.h"

#include <fmt/core.h>

#include <cstring>

#include "cuda/kernels/accumulate.h"
#include "cuda/stream.h"

namespace trainctl::cuda {
namespace {

ncclDataType_t nccl_type(DType dtype) {
    switch (dtype) {
        case DType::F64:
            return ncclFloat64;
        case DType::F32:
            return ncclFloat32;
        case DType::BF16:
            return ncclBfloat16;
        case DType::F16:
            return ncclFloat16;
        case DType::I64:
            return ncclInt64;
        case DType::I32:
            return ncclInt32;
        case DType::U32:
            return ncclUint32;
        case DType::U8:
            return ncclUint8;
        case DType::U16:
            break;
    }
    fail(Exit::Internal, fmt::format("NCCL does not move {}", dtype_name(dtype)));
}

ncclRedOp_t nccl_reduction(Reduce reduce) {
    switch (reduce) {
        case Reduce::Sum:
            return ncclSum;
        case Reduce::Max:
            return ncclMax;
        case Reduce::Min:
            return ncclMin;
    }
    fail(Exit::Internal, "unknown Reduce");
}

// The id that rank 0 of `inner` makes, everywhere.
ncclUniqueId agree_on_id(Communicator& inner, CpuDevice& host) {
    ncclUniqueId id{};
    if (inner.rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const Buffer bytes = host.allocate(sizeof id, Memory::Device, "NCCL id");
    std::memcpy(bytes.data(), &id, sizeof id);
    const auto stream = host.make_stream("NCCL id", StreamRole::Communication);
    inner.broadcast(bytes.view(Shape{static_cast<std::int64_t>(sizeof id)}, DType::U8), 0, *stream);
    stream->synchronize();
    std::memcpy(&id, bytes.data(), sizeof id);
    return id;
}

class NcclCommunicator final : public Communicator {
  public:
    NcclCommunicator(std::unique_ptr<Communicator> inner, Device& device, CpuDevice& host,
                     std::shared_ptr<NcclWatch> watch)
        : inner_(std::move(inner)), device_(device), host_(host), watch_(std::move(watch)) {
        if (size() == 1) return;  // nothing to bring together
        const ncclUniqueId id = agree_on_id(*inner_, host_);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 1;
        check(ncclCommInitRankConfig(&communicator_, size(), id, rank(), &config), "ncclCommInitRank");
        watch_->add(communicator_, std::string(name()));
    }
    ~NcclCommunicator() override {
        if (communicator_ != nullptr && watch_->remove(communicator_))
            static_cast<void>(ncclCommDestroy(communicator_));
    }
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;

    [[nodiscard]] int rank() const override { return inner_->rank(); }
    [[nodiscard]] int size() const override { return inner_->size(); }
    [[nodiscard]] std::string_view name() const override { return inner_->name(); }

    void all_reduce(TensorView tensor, Reduce reduce, Stream& stream) override {
        if (size() == 1 || tensor.elements() == 0) return;
        issue("all_reduce", tensor.bytes(), stream, [&](cudaStream_t raw) {
            return ncclAllReduce(tensor.data, tensor.data, count(tensor), nccl_type(tensor.dtype),
                                 nccl_reduction(reduce), communicator_, raw);
        });
    }

    void reduce_scatter(TensorView shard, TensorView full, Into into, Stream& stream) override {
        check_parts("reduce_scatter", full, shard);
        if (shard.elements() == 0) return;
        if (into == Into::Overwrite && shard.dtype == full.dtype) {
            if (size() == 1) return copy(stream, shard, full);
            return reduce_into(shard.data, full, stream);
        }
        invariant(shard.dtype == DType::F32, "reduce_scatter: only F32 shards accumulate or widen");
        // The sum takes the rank's own part of what it sends: that needs no memory of its own.
        const TensorView own = full.flat(rank() * shard.elements(), shard.elements());
        invariant(own.data != shard.data, "reduce_scatter: a shard within the tensor cannot accumulate");
        if (size() > 1) reduce_into(own.data, full, stream);
        accumulate(handle(stream), shard.as<float>(), own.data, full.dtype, shard.elements(), into);
    }

    void all_gather(TensorView full, TensorView shard, Stream& stream) override {
        check_parts("all_gather", full, shard);
        if (shard.elements() == 0) return;
        if (size() == 1) return copy(stream, full, shard);
        issue("all_gather", full.bytes(), stream, [&](cudaStream_t raw) {
            return ncclAllGather(shard.data, full.data, count(shard), nccl_type(shard.dtype), communicator_,
                                 raw);
        });
    }

    void broadcast(TensorView tensor, int root, Stream& stream) override {
        if (size() == 1 || tensor.elements() == 0) return;
        issue("broadcast", tensor.bytes(), stream, [&](cudaStream_t raw) {
            return ncclBroadcast(tensor.data, tensor.data, count(tensor), nccl_type(tensor.dtype), root,
                                 communicator_, raw);
        });
    }

    void send(TensorView tensor, int to, Stream& stream) override {
        issue("send", tensor.bytes(), stream, [&](cudaStream_t raw) {
            return ncclSend(tensor.data, count(tensor), nccl_type(tensor.dtype), to, communicator_, raw);
        });
    }

    void receive(TensorView tensor, int from, Stream& stream) override {
        issue("receive", tensor.bytes(), stream, [&](cudaStream_t raw) {
            return ncclRecv(tensor.data, count(tensor), nccl_type(tensor.dtype), from, communicator_, raw);
        });
    }

    void group_begin(Stream& stream) override {
        invariant(group_stream_ == nullptr, "group_begin: a group is open already");
        group_stream_ = &stream;
        group_bytes_ = 0;
        check(ncclGroupStart(), "ncclGroupStart", communicator_);
    }

    void group_end(Stream& stream) override {
        invariant(group_stream_ == &stream, "group_end: no group is open on this stream");
        group_stream_ = nullptr;
        check(ncclGroupEnd(), "ncclGroupEnd", communicator_);
        if (communicator_ != nullptr)
            watch_->issued(communicator_, handle(stream), "group", sequence_++, group_bytes_);
    }

    void barrier() override { inner_->barrier(); }

    std::unique_ptr<Communicator> split(int color, int key, std::string_view name) override {
        std::unique_ptr<Communicator> part = inner_->split(color, key, name);
        if (!part) return nullptr;
        return std::make_unique<NcclCommunicator>(std::move(part), device_, host_, watch_);
    }

    void abort(const std::string& reason) override { inner_->abort(reason); }

  private:
    static std::size_t count(const TensorView& tensor) { return static_cast<std::size_t>(tensor.elements()); }

    template <class Call>
    void issue(const char* what, std::size_t bytes, Stream& stream, const Call& call) {
        watch_->rethrow();
        check(call(handle(stream)), what, communicator_);
        if (group_stream_ == &stream) {
            group_bytes_ += bytes;
            return;
        }
        watch_->issued(communicator_, handle(stream), what, sequence_++, bytes);
    }

    void reduce_into(void* to, const TensorView& full, Stream& stream) {
        issue("reduce_scatter", full.bytes(), stream, [&](cudaStream_t raw) {
            return ncclReduceScatter(full.data, to, count(full) / static_cast<std::size_t>(size()),
                                     nccl_type(full.dtype), ncclSum, communicator_, raw);
        });
    }

    void copy(Stream& stream, TensorView to, TensorView from) {
        if (to.data != from.data) device_.copy(stream, to.data, from.data, from.bytes());
    }

    void check_parts(const char* what, const TensorView& full, const TensorView& shard) const {
        if (full.elements() == shard.elements() * size()) return;
        fail(Exit::Internal, fmt::format("{} over {} ranks of '{}': {} elements are not {} times {}", what,
                                         size(), name(), full.elements(), size(), shard.elements()));
    }

    std::unique_ptr<Communicator> inner_;
    Device& device_;
    CpuDevice& host_;
    std::shared_ptr<NcclWatch> watch_;
    ncclComm_t communicator_ = nullptr;
    const Stream* group_stream_ = nullptr;
    std::size_t group_bytes_ = 0;
    unsigned sequence_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> inner, Device& device,
                                                     CpuDevice& host, std::shared_ptr<NcclWatch> watch) {
    return std::make_unique<NcclCommunicator>(std::move(inner), device, host, std::move(watch));
}

}  // namespace trainctl::cuda
