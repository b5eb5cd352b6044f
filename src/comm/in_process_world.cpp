#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <numeric>

#include "comm/host_communicator.h"
#include "comm/mailbox.h"
#include "trainctl/comm/host_name.h"
#include "trainctl/comm/world.h"

namespace trainctl {
namespace {

class InProcessWorld final : public World {
  public:
    InProcessWorld(std::shared_ptr<InProcessHub> hub, int rank, CpuDevice& device,
                   const WorldOptions& options)
        : hub_(std::move(hub)), rank_(rank), options_(options), line_(std::make_shared<WorldLine>(device)) {
        // The hub lives as long as anything that may call it.
        line_->abort = [hub_copy = hub_](const std::string& reason) {
            hub_copy->abort(Error(Exit::Peer, reason, Where::here()));
        };
        all_ = make_host_communicator(line_, core("world", options));
        control_ = make_host_channel(line_, core("control", options));
    }

    ~InProcessWorld() override {
        if (std::uncaught_exceptions() > exceptions_) {
            hub_->abort(Error(Exit::Peer, fmt::format("rank {} left the world because of an error", rank_),
                              Where::here()));
            return;
        }
        try {
            control_->barrier();  // nobody's messages are cut off
        } catch (const Error&) {  // the world has failed: whoever noticed has reported it
        }
    }

    InProcessWorld(const InProcessWorld&) = delete;
    InProcessWorld& operator=(const InProcessWorld&) = delete;

    Communicator& all() override { return *all_; }
    HostChannel& control() override { return *control_; }
    std::unique_ptr<HostChannel> make_background_channel() override {
        auto line = std::make_shared<WorldLine>(line_->control.device, StreamRole::Background);
        line->abort = line_->abort;
        return make_host_channel(std::move(line), core(fmt::format("background {}", background_channels_++),
                                                       background_options(options_)));
    }
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return hub_->size(); }
    [[nodiscard]] int local_rank() const override { return rank_; }
    [[nodiscard]] int local_size() const override { return hub_->size(); }
    [[nodiscard]] std::string host() const override { return host_; }

    void abort(const Error& cause) override {
        hub_->abort(Error(Exit::Peer, fmt::format("rank {} failed: {}", rank_, cause.what()), cause.where()));
    }

  private:
    std::shared_ptr<CommCore> core(const std::string& name, const WorldOptions& options) {
        auto core = std::make_shared<CommCore>();
        core->name = name;
        core->transport = hub_->enter(name, rank_, hub_->size());
        core->world_ranks.resize(static_cast<std::size_t>(hub_->size()));
        std::iota(core->world_ranks.begin(), core->world_ranks.end(), 0);
        core->options = options;
        return core;
    }

    std::shared_ptr<InProcessHub> hub_;
    int rank_;
    int exceptions_ = std::uncaught_exceptions();
    std::string host_ = host_name();
    WorldOptions options_;
    int background_channels_ = 0;
    std::shared_ptr<WorldLine> line_;
    std::unique_ptr<Communicator> all_;
    std::unique_ptr<HostChannel> control_;
};

}  // namespace

std::unique_ptr<World> join_in_process(std::shared_ptr<InProcessHub> hub, int rank, CpuDevice& device,
                                       const WorldOptions& options) {
    invariant(rank >= 0 && rank < hub->size(), "join_in_process: no such rank in this hub");
    return std::make_unique<InProcessWorld>(std::move(hub), rank, device, options);
}

std::unique_ptr<World> make_single_world(CpuDevice& device, const WorldOptions& options) {
    return join_in_process(make_in_process_hub(1), 0, device, options);
}

}  // namespace trainctl
