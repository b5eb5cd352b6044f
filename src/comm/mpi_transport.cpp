#include <fmt/core.h>

#include <array>

#include "comm/mpi_context.h"

namespace trainctl {
namespace {

std::string mpi_text(int code) {
    std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    return {text.data(), static_cast<std::size_t>(length)};
}

class MpiTransport final : public Transport {
  public:
    MpiTransport(std::shared_ptr<MpiContext> context, MPI_Comm communicator)
        : context_(std::move(context)), communicator_(communicator) {
        MPI_Comm_rank(communicator_, &rank_);
        MPI_Comm_size(communicator_, &size_);
    }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }

    int send(int to, int tag, const std::byte* data, std::size_t bytes) override {
        const int handle = open(to, bytes);
        const std::scoped_lock lock(context_->mutex);
        check_mpi(
            MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, communicator_, &request(handle)),
            "MPI_Isend");
        return handle;
    }

    int receive(int from, int tag, std::byte* data, std::size_t bytes) override {
        const int handle = open(from, bytes);
        slots_[static_cast<std::size_t>(handle)].receive = true;
        const std::scoped_lock lock(context_->mutex);
        check_mpi(
            MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, communicator_, &request(handle)),
            "MPI_Irecv");
        return handle;
    }

    void poll() override {
        if (open_ == 0) return;
        indices_.resize(requests_.size());
        statuses_.resize(requests_.size());
        int count = 0;
        int code = MPI_SUCCESS;
        {
            const std::scoped_lock lock(context_->mutex);
            code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(),
                                statuses_.data());
        }
        if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testsome");
        if (count == MPI_UNDEFINED) return;
        for (int i = 0; i < count; ++i) {
            Slot& slot = slots_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])];
            slot.done = true;
            if (code == MPI_ERR_IN_STATUS) slot.error = statuses_[static_cast<std::size_t>(i)].MPI_ERROR;
            int received = 0;
            if (slot.receive && slot.error == MPI_SUCCESS) {
                MPI_Get_count(&statuses_[static_cast<std::size_t>(i)], MPI_BYTE, &received);
                slot.wrong_length = received != static_cast<int>(slot.bytes);
            }
        }
    }

    bool finished(int handle) override {
        const Slot slot = slots_[static_cast<std::size_t>(handle)];
        if (!slot.done) return false;
        release(handle);
        if (slot.wrong_length || slot.error == MPI_ERR_TRUNCATE) {
            fail(Exit::Internal,
                 fmt::format("a message from member {} has another length than the {} bytes expected: "
                             "ranks are out of step",
                             slot.peer, slot.bytes));
        }
        if (slot.error != MPI_SUCCESS) {
            fail(Exit::Peer, fmt::format("a message {} member {} failed: {}", slot.receive ? "from" : "to",
                                         slot.peer, mpi_text(slot.error)));
        }
        return true;
    }

    void cancel(int handle) noexcept override {
        // The job is about to end. A request that cannot be cancelled is left behind: no later call moves it
        // on.
        Slot& slot = slots_[static_cast<std::size_t>(handle)];
        if (!slot.done) {
            const std::scoped_lock lock(context_->mutex);
            MPI_Request& pending = request(handle);
            if (context_->running && pending != MPI_REQUEST_NULL) {
                if (slot.receive) MPI_Cancel(&pending);
                MPI_Request_free(&pending);
            }
        }
        release(handle);
    }

    std::unique_ptr<Transport> split(const std::vector<SplitChoice>& choices, int /*serial*/) override {
        // Blocks, but only for as long as it takes the others to come here: all have announced that they do.
        const SplitChoice mine = choices[static_cast<std::size_t>(rank_)];
        MPI_Comm part = MPI_COMM_NULL;
        {
            const std::scoped_lock lock(context_->mutex);
            check_mpi(
                MPI_Comm_split(communicator_, mine.colour < 0 ? MPI_UNDEFINED : mine.colour, mine.key, &part),
                "MPI_Comm_split");
            if (part == MPI_COMM_NULL) return nullptr;
            adopt(*context_, part);
        }
        return make_mpi_transport(context_, part);
    }

  private:
    struct Slot {
        int peer = 0;
        std::size_t bytes = 0;
        int error = MPI_SUCCESS;
        bool receive = false;
        bool done = false;
        bool wrong_length = false;
    };

    MPI_Request& request(int handle) { return requests_[static_cast<std::size_t>(handle)]; }

    int open(int peer, std::size_t bytes) {
        if (free_.empty()) {
            free_.push_back(static_cast<int>(slots_.size()));
            slots_.emplace_back();
            requests_.push_back(MPI_REQUEST_NULL);
        }
        const int handle = free_.back();
        free_.pop_back();
        Slot& slot = slots_[static_cast<std::size_t>(handle)];
        slot = Slot{};
        slot.peer = peer;
        slot.bytes = bytes;
        ++open_;
        return handle;
    }

    void release(int handle) {
        request(handle) = MPI_REQUEST_NULL;
        free_.push_back(handle);
        --open_;
    }

    std::shared_ptr<MpiContext> context_;
    MPI_Comm communicator_;
    int rank_ = 0;
    int size_ = 1;
    std::vector<Slot> slots_;
    std::vector<MPI_Request> requests_;  // by slot; MPI_REQUEST_NULL where free or done
    std::vector<int> free_;
    int open_ = 0;
    std::vector<int> indices_;
    std::vector<MPI_Status> statuses_;
};

}  // namespace

void check_mpi(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    fail(Exit::Peer,
         fmt::format("{} failed: {}. The network or another rank has failed; look at the hosts, then start "
                     "again with --resume auto",
                     call, mpi_text(code)));
}

MPI_Comm adopt(MpiContext& context, MPI_Comm communicator) {
    MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    context.communicators.push_back(communicator);
    return communicator;
}

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiContext> context, MPI_Comm communicator) {
    return std::make_unique<MpiTransport>(std::move(context), communicator);
}

}  // namespace trainctl
