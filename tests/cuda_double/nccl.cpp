// NCCL's functions that the backend uses, under their own names: ranks are threads of this process, sums are
// made in rank order. Strict about what NCCL leaves undefined: ranks that issue different messages are a
// fault with both named.
#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_double/emulated_device.h"
#include "trainctl/base/error.h"
#include "trainctl/tensor/dtype.h"

namespace trainctl::cuda_double {
namespace {

std::size_t size_of(ncclDataType_t type) {
    switch (type) {
        case ncclFloat64:
        case ncclInt64:
            return 8;
        case ncclFloat32:
        case ncclInt32:
        case ncclUint32:
            return 4;
        case ncclBfloat16:
        case ncclFloat16:
            return 2;
        default:
            return 1;
    }
}

template <class T>
T both(T a, T b, ncclRedOp_t op) {
    if (op == ncclMax) return std::max(a, b);
    return op == ncclMin ? std::min(a, b) : static_cast<T>(a + b);
}

using Bytes = std::vector<std::byte>;

// left (op)= right, elementwise, rounded to the type each time as NCCL does.
void combine(Bytes& left, const Bytes& right, ncclDataType_t type, ncclRedOp_t op) {
    const auto each = [&]<class T>(auto widen, auto narrow, T*) {
        for (std::size_t at = 0; at < left.size(); at += sizeof(T)) {
            T a;
            T b;
            std::memcpy(&a, left.data() + at, sizeof a);
            std::memcpy(&b, right.data() + at, sizeof b);
            const T result = narrow(both(widen(a), widen(b), op));
            std::memcpy(left.data() + at, &result, sizeof result);
        }
    };
    const auto same = [](auto x) { return x; };
    const auto wide = [](auto x) { return to_float(x); };
    switch (type) {
        case ncclFloat64:
            return each(same, same, static_cast<double*>(nullptr));
        case ncclFloat32:
            return each(same, same, static_cast<float*>(nullptr));
        case ncclInt64:
            return each(same, same, static_cast<std::int64_t*>(nullptr));
        case ncclInt32:
            return each(same, same, static_cast<std::int32_t*>(nullptr));
        case ncclBfloat16:
            return each(
                wide, [](float x) { return to_bfloat16(x); }, static_cast<BFloat16*>(nullptr));
        case ncclFloat16:
            return each(
                wide, [](float x) { return to_float16(x); }, static_cast<Float16*>(nullptr));
        default:
            fail(Exit::Internal, "the NCCL double does not add this type");
    }
}

struct Meeting {
    std::string kind;
    std::vector<Bytes> contributions;
    std::vector<bool> here;
    int taken = 0;
};

// What the ranks of one communicator share.
struct Group {
    std::mutex mutex;
    std::condition_variable changed;
    int size = 0;
    int joined = 0;
    std::string ended;                          // why nothing comes to an end any more; empty: it does
    std::map<std::uint64_t, Meeting> meetings;  // by sequence number
    std::map<std::pair<int, int>, std::deque<Bytes>> pair_messages;  // by (from, to)
};

std::mutex groups_mutex;
std::map<std::string, std::shared_ptr<Group>> groups;
std::uint64_t ids = 0;

}  // namespace
}  // namespace trainctl::cuda_double

struct ncclComm {
    std::shared_ptr<trainctl::cuda_double::Group> group;
    int rank = 0;
    std::uint64_t sequence = 0;
};

namespace trainctl::cuda_double {
namespace {

void check_alive(const Group& group) {
    if (!group.ended.empty()) fail(Exit::Peer, group.ended);
}

void give_up(const ncclComm& comm, const char* why) {
    const std::scoped_lock lock(comm.group->mutex);
    if (comm.group->ended.empty()) comm.group->ended = why;
}

class Collective final : public Operation {
  public:
    using Finish = std::function<void(const Group&, Meeting&)>;
    Collective(ncclComm& comm, std::string kind, const void* from, std::size_t bytes, Finish finish)
        : group_(comm.group),
          rank_(static_cast<std::size_t>(comm.rank)),
          sequence_(comm.sequence++),
          kind_(std::move(kind)),
          from_(static_cast<const std::byte*>(from)),
          bytes_(bytes),
          finish_(std::move(finish)) {}

    bool advance() override {
        const std::scoped_lock lock(group_->mutex);
        check_alive(*group_);
        Meeting& meeting = group_->meetings[sequence_];
        meeting.contributions.resize(static_cast<std::size_t>(group_->size));
        meeting.here.resize(static_cast<std::size_t>(group_->size));
        if (!meeting.here[rank_]) {
            if (meeting.kind.empty()) meeting.kind = kind_;
            if (meeting.kind != kind_)
                fail(Exit::Internal, "NCCL: one rank issues " + meeting.kind + ", another " + kind_);
            meeting.contributions[rank_].assign(from_, from_ + bytes_);
            meeting.here[rank_] = true;
        }
        if (std::find(meeting.here.begin(), meeting.here.end(), false) != meeting.here.end()) return false;
        finish_(*group_, meeting);
        if (++meeting.taken == group_->size) group_->meetings.erase(sequence_);
        return true;
    }

  private:
    std::shared_ptr<Group> group_;
    std::size_t rank_;
    std::uint64_t sequence_;
    std::string kind_;
    const std::byte* from_;
    std::size_t bytes_;
    Finish finish_;
};

class Pair final : public Operation {
  public:
    Pair(std::shared_ptr<Group> group, std::pair<int, int> route, const void* from, void* to,
         std::size_t bytes)
        : group_(std::move(group)), route_(route), from_(from), to_(to), bytes_(bytes) {}
    bool advance() override {
        const std::scoped_lock lock(group_->mutex);
        check_alive(*group_);
        std::deque<Bytes>& queue = group_->pair_messages[route_];
        if (from_ != nullptr) {
            const auto* bytes = static_cast<const std::byte*>(from_);
            queue.emplace_back(bytes, bytes + bytes_);
            return true;
        }
        if (queue.empty()) return false;
        if (queue.front().size() != bytes_)
            fail(Exit::Internal, "NCCL: a receive and its send differ in size");
        std::memcpy(to_, queue.front().data(), bytes_);
        queue.pop_front();
        return true;
    }

  private:
    std::shared_ptr<Group> group_;
    std::pair<int, int> route_;
    const void* from_;
    void* to_;
    std::size_t bytes_;
};

// Until all of them are done, in any order.
class Together final : public Operation {
  public:
    explicit Together(std::vector<std::unique_ptr<Operation>> parts) : parts_(std::move(parts)) {}
    bool advance() override {
        for (auto& part : parts_) {
            if (part && part->advance()) part.reset();
        }
        return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part == nullptr; });
    }

  private:
    std::vector<std::unique_ptr<Operation>> parts_;
};

thread_local int group_depth = 0;
thread_local std::map<cudaStream_t, std::vector<std::unique_ptr<Operation>>> grouped;

ncclResult_t hand_over(cudaStream_t stream, std::unique_ptr<Operation> operation) {
    if (group_depth > 0) {
        grouped[stream].push_back(std::move(operation));
        return ncclSuccess;
    }
    return enqueue_operation(stream, std::move(operation)) == cudaSuccess ? ncclSuccess
                                                                          : ncclUnhandledCudaError;
}

std::string kind_of(const char* what, std::size_t count, ncclDataType_t type, int extra) {
    return std::string(what) + " of " + std::to_string(count) + " elements of type " + std::to_string(type) +
           ", " + std::to_string(extra);
}

Bytes sum_of(const Meeting& meeting, std::size_t begin, std::size_t bytes, ncclDataType_t type,
             ncclRedOp_t op) {
    const auto part = [&](const Bytes& all) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
        return Bytes(first, first + static_cast<std::ptrdiff_t>(bytes));
    };
    Bytes sum = part(meeting.contributions[0]);
    for (std::size_t rank = 1; rank < meeting.contributions.size(); ++rank)
        combine(sum, part(meeting.contributions[rank]), type, op);
    return sum;
}

}  // namespace
}  // namespace trainctl::cuda_double

using namespace trainctl;               // NOLINT: everything here is about them
using namespace trainctl::cuda_double;  // NOLINT

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess ? "no error" : "an error of the test double";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) { return ""; }
ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const std::scoped_lock lock(groups_mutex);
    *id = {};
    const std::string text = "group " + std::to_string(++ids);
    std::memcpy(id->internal, text.c_str(), text.size());
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* /*config*/) {
    std::shared_ptr<Group> group;
    {
        const std::scoped_lock lock(groups_mutex);
        std::shared_ptr<Group>& entry = groups[id.internal];
        if (!entry) entry = std::make_shared<Group>();
        group = entry;
        group->size = size;
    }
    std::unique_lock lock(group->mutex);
    ++group->joined;
    group->changed.notify_all();
    group->changed.wait(lock, [&] { return group->joined >= size; });
    *comm = new ncclComm{group, rank, 0};
    return ncclSuccess;
}

// Of a rank that fails, its peers would wait until they lose patience: the test is to end with its message.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (std::uncaught_exceptions() > 0) give_up(*comm, "a rank of this NCCL communicator failed");
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    give_up(*comm, "this NCCL communicator was aborted");
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t* state) {
    *state = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    const std::size_t bytes = count * size_of(type);
    return hand_over(stream, std::make_unique<Collective>(
                                 *comm, kind_of("all_reduce", count, type, op), from, bytes,
                                 [=](const Group&, Meeting& meeting) {
                                     std::memcpy(to, sum_of(meeting, 0, bytes, type, op).data(), bytes);
                                 }));
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    const std::size_t bytes = count * size_of(type);
    const auto rank = static_cast<std::size_t>(comm->rank);
    const auto size = static_cast<std::size_t>(comm->group->size);
    // In place means the rank's own part; any other overlap is undefined.
    const auto* first = static_cast<const std::byte*>(from);
    const auto* result = static_cast<const std::byte*>(to);
    if (result > first - bytes && result < first + bytes * size && result != first + rank * bytes)
        return ncclInvalidArgument;
    return hand_over(stream, std::make_unique<Collective>(
                                 *comm, kind_of("reduce_scatter", count, type, op), from, bytes * size,
                                 [=](const Group&, Meeting& meeting) {
                                     std::memcpy(to, sum_of(meeting, rank * bytes, bytes, type, op).data(),
                                                 bytes);
                                 }));
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    const std::size_t bytes = count * size_of(type);
    return hand_over(stream,
                     std::make_unique<Collective>(*comm, kind_of("all_gather", count, type, 0), from, bytes,
                                                  [=](const Group&, Meeting& meeting) {
                                                      auto* next = static_cast<std::byte*>(to);
                                                      for (const Bytes& part : meeting.contributions) {
                                                          std::memcpy(next, part.data(), bytes);
                                                          next += bytes;
                                                      }
                                                  }));
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    const std::size_t bytes = count * size_of(type);
    return hand_over(
        stream, std::make_unique<Collective>(
                    *comm, kind_of("broadcast", count, type, root), from, comm->rank == root ? bytes : 0,
                    [=](const Group&, Meeting& meeting) {
                        std::memcpy(to, meeting.contributions[static_cast<std::size_t>(root)].data(), bytes);
                    }));
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return hand_over(stream, std::make_unique<Pair>(comm->group, std::pair(comm->rank, peer), from, nullptr,
                                                    count * size_of(type)));
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return hand_over(stream, std::make_unique<Pair>(comm->group, std::pair(peer, comm->rank), nullptr, to,
                                                    count * size_of(type)));
}

ncclResult_t ncclGroupStart() {
    ++group_depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (--group_depth > 0) return ncclSuccess;
    ncclResult_t result = ncclSuccess;
    for (auto& [stream, operations] : grouped) {
        const ncclResult_t one = hand_over(stream, std::make_unique<Together>(std::move(operations)));
        if (one != ncclSuccess) result = one;
    }
    grouped.clear();
    return result;
}

}  // extern "C"
