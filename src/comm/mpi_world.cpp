#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>

#include "comm/host_communicator.h"
#include "comm/mpi_context.h"
#include "trainctl/comm/host_name.h"
#include "trainctl/comm/world.h"

namespace trainctl {
namespace {

// Plain work of the progress thread, as an operation of the control stream.
class Call final : public Operation {
  public:
    explicit Call(std::function<void()> call) : call_(std::move(call)) {}
    bool advance() override {
        call_();
        return true;
    }

  private:
    std::function<void()> call_;
};

struct Started {
    std::unique_ptr<Transport> tensors;
    std::unique_ptr<Transport> control;
    int local_rank = 0;
    int local_size = 1;
};

std::unique_ptr<Transport> duplicate_world(const std::shared_ptr<MpiContext>& context) {
    MPI_Comm copy = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
    return make_mpi_transport(context, adopt(*context, copy));
}

void start_mpi(const std::shared_ptr<MpiContext>& context, Started& started) {
    const std::scoped_lock lock(context->mutex);
    int before = 0;
    MPI_Initialized(&before);
    invariant(before == 0, "MPI can be started only once per process");
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    context->running = true;
    if (provided < MPI_THREAD_SERIALIZED) {
        fail(Exit::Resource,
             "this MPI library does not support MPI_THREAD_SERIALIZED; use one built with threads");
    }
    started.tensors = duplicate_world(context);
    started.control = duplicate_world(context);
    MPI_Comm host = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
              "MPI_Comm_split_type");
    MPI_Comm_rank(host, &started.local_rank);
    MPI_Comm_size(host, &started.local_size);
    MPI_Comm_free(&host);
}

void finish_mpi(MpiContext& context) {
    const std::scoped_lock lock(context.mutex);
    for (MPI_Comm& communicator : context.communicators) MPI_Comm_free(&communicator);
    context.communicators.clear();
    context.running = false;
    MPI_Finalize();
}

// Ends all ranks. Any thread: waits for the progress thread to leave MPI, but not for ever.
[[noreturn]] void end_job(MpiContext& context, Exit code) {
    std::fflush(nullptr);
    const bool locked = context.mutex.try_lock_for(std::chrono::seconds(2));
    int running = 0;
    int finished = 0;
    MPI_Initialized(&running);
    MPI_Finalized(&finished);
    if (running != 0 && finished == 0) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
    if (locked) context.mutex.unlock();
    std::_Exit(static_cast<int>(code));
}

class MpiWorld final : public World {
  public:
    MpiWorld(CpuDevice& device, const WorldOptions& options)
        : options_(options),
          context_(std::make_shared<MpiContext>()),
          line_(std::make_shared<WorldLine>(device)) {
        // A waiting rank must not take the core from a computing one. The user's own setting wins.
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);  // NOLINT(concurrency-mt-unsafe): start-up
        line_->control.run(std::make_unique<Call>([this] { start_mpi(context_, started_); }));
        line_->abort = [context = context_](const std::string& reason) {
            std::fprintf(stderr, "trainctl: %s\n", reason.c_str());
            end_job(*context, Exit::Peer);
        };
        const auto control = core("control", std::move(started_.control), nullptr, options);
        control_ = make_host_channel(line_, control);
        rank_ = control_->rank();
        size_ = control_->size();
        hosts_ = all_hosts();
        control->hosts = hosts_;
        all_ = make_host_communicator(line_, core("world", std::move(started_.tensors), hosts_, options));
    }

    ~MpiWorld() override {
        if (std::uncaught_exceptions() > exceptions_) end_job(*context_, Exit::Internal);
        // The first process that exits with another code than 0 takes the others down, and nothing that was
        // printed may be lost by that.
        std::fflush(nullptr);
        try {
            control_->barrier();
            line_->control.run(std::make_unique<Call>([this] { finish_mpi(*context_); }));
        } catch (const Error& error) {
            end_job(*context_, error.code());
        }
    }

    MpiWorld(const MpiWorld&) = delete;
    MpiWorld& operator=(const MpiWorld&) = delete;

    Communicator& all() override { return *all_; }
    HostChannel& control() override { return *control_; }
    std::unique_ptr<HostChannel> make_background_channel() override {
        std::unique_ptr<Transport> transport;
        line_->control.run(
            std::make_unique<Call>([this, &transport] { transport = duplicate_world(context_); }));
        auto line = std::make_shared<WorldLine>(line_->control.device, StreamRole::Background);
        line->abort = line_->abort;
        return make_host_channel(
            std::move(line), core("background", std::move(transport), hosts_, background_options(options_)));
    }
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    [[nodiscard]] int local_rank() const override { return started_.local_rank; }
    [[nodiscard]] int local_size() const override { return started_.local_size; }
    [[nodiscard]] std::string host() const override { return host_; }
    void abort(const Error& cause) override { end_job(*context_, cause.code()); }

  private:
    static std::shared_ptr<CommCore> core(const std::string& name, std::unique_ptr<Transport> transport,
                                          std::shared_ptr<const std::vector<std::string>> hosts,
                                          const WorldOptions& options) {
        auto core = std::make_shared<CommCore>();
        core->name = name;
        core->transport = std::move(transport);
        core->world_ranks.resize(static_cast<std::size_t>(core->transport->size()));
        std::iota(core->world_ranks.begin(), core->world_ranks.end(), 0);
        core->hosts = std::move(hosts);
        core->options = options;
        return core;
    }

    std::shared_ptr<const std::vector<std::string>> all_hosts() {
        std::string list;
        for (const std::string& host : control_->gather(host_)) list += host + '\n';
        list = control_->broadcast(list);
        auto hosts = std::make_shared<std::vector<std::string>>();
        for (std::size_t begin = 0; begin < list.size();) {
            const std::size_t end = list.find('\n', begin);
            hosts->push_back(list.substr(begin, end - begin));
            begin = end + 1;
        }
        return hosts;
    }

    int exceptions_ = std::uncaught_exceptions();
    WorldOptions options_;
    std::string host_ = host_name();
    std::shared_ptr<const std::vector<std::string>> hosts_;  // by rank
    std::shared_ptr<MpiContext> context_;
    std::shared_ptr<WorldLine> line_;
    Started started_;
    int rank_ = 0;
    int size_ = 1;
    std::unique_ptr<HostChannel> control_;
    std::unique_ptr<Communicator> all_;
};

}  // namespace

std::unique_ptr<World> make_mpi_world(CpuDevice& device, const WorldOptions& options) {
    return std::make_unique<MpiWorld>(device, options);
}

}  // namespace trainctl
