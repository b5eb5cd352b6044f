#include "trainctl/train/tier_copies.h"

#include <iterator>
#include <utility>

namespace trainctl {
namespace {

struct Offer {
    std::string directory;
    std::int64_t step = 0;
};

// Rank 0 speaks at least so often, so that nobody's wait ends by its deadline.
constexpr std::chrono::seconds idle(30);
// What rank 0 says instead of a directory.
const std::string nothing_yet = "";
const std::string the_end = "/";

}  // namespace

struct TierCopies::Worker {
    Worker(FileSystem& files, Clock& clock, const CopySettings& settings, CopyTarget the_target,
           std::unique_ptr<HostChannel> the_channel)
        : target(std::move(the_target)), channel(std::move(the_channel)), copier(files, clock, settings) {}

    // Rank 0's word: a directory, or one of the above.
    std::string next_word() {
        std::unique_lock lock(mutex);
        changed.wait_for(lock, idle, [&] { return offered || ending; });
        if (offered) {
            copying = std::exchange(offered, std::nullopt);
            return copying->directory;
        }
        return ending ? the_end : nothing_yet;
    }

    void give_up() {
        channel->give_up();
        const std::lock_guard lock(mutex);
        ending = true;
        offered.reset();
        changed.notify_all();
    }

    void closed(const Result<CopyReport>& result) {
        if (channel->rank() != 0) return;
        CopyRecord record;
        const std::lock_guard lock(mutex);
        record.tier = target.place.name;
        record.step = copying->step;
        record.directory = copying->directory;
        record.left_out = left_out;
        if (result.ok()) {
            record.bytes = result.value().bytes;
            record.seconds = result.value().seconds;
            record.removed = result.value().removed;
            record.warnings = result.value().warnings;
        } else {
            record.error = result.error().what();
        }
        ended.push_back(std::move(record));
    }

    CopyTarget target;
    std::unique_ptr<HostChannel> channel;
    TierCopier copier;
    std::mutex mutex;  // of what follows, down to the thread
    std::condition_variable changed;
    std::optional<Offer> offered;
    std::optional<Offer> copying;
    std::vector<CopyRecord> ended;
    std::int64_t left_out = 0;
    bool ending = false;
    std::future<void> thread;
};

TierCopies::TierCopies(FileSystem& files, Clock& clock, World& world, const CopySettings& settings,
                       const std::vector<CopyTarget>& targets) {
    for (const CopyTarget& target : targets) {
        workers_.push_back(
            std::make_unique<Worker>(files, clock, settings, target, world.make_background_channel()));
        Worker& worker = *workers_.back();
        worker.thread = std::async(std::launch::async, [&worker] { work(worker); });
    }
}

TierCopies::~TierCopies() {
    for (const auto& worker : workers_) worker->give_up();
}

void TierCopies::work(Worker& worker) {
    try {
        while (true) {
            const bool decides = worker.channel->rank() == 0;
            const std::string word = worker.channel->broadcast(decides ? worker.next_word() : std::string());
            if (word == the_end) return;
            if (word == nothing_yet) continue;
            worker.closed(worker.target.kind == CopyTarget::Kind::NextNode
                              ? worker.copier.copy_to_peers(word, *worker.channel)
                              : worker.copier.copy(word, worker.target.place, *worker.channel));
        }
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a lost peer, which the training meets as well
    }
}

void TierCopies::offer(const std::string& directory, std::int64_t step, Origin origin) {
    for (const auto& worker : workers_) {
        if (worker->channel->rank() != 0) return;
        if (origin == Origin::AnEarlierOne && worker->target.kind == CopyTarget::Kind::NextNode) continue;
        const std::lock_guard lock(worker->mutex);
        if (worker->offered) ++worker->left_out;
        worker->offered = Offer{directory, step};
        worker->changed.notify_all();
    }
}

std::vector<CopyRecord> TierCopies::take() {
    std::vector<CopyRecord> records;
    for (const auto& worker : workers_) {
        const std::lock_guard lock(worker->mutex);
        std::move(worker->ended.begin(), worker->ended.end(), std::back_inserter(records));
        worker->ended.clear();
    }
    return records;
}

void TierCopies::finish() {
    for (const auto& worker : workers_) {
        const std::lock_guard lock(worker->mutex);
        worker->ending = true;
        worker->changed.notify_all();
    }
    for (const auto& worker : workers_) {
        if (worker->thread.valid()) worker->thread.get();
    }
}

bool TierCopies::give_up(std::chrono::duration<double> patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    for (const auto& worker : workers_) worker->give_up();
    for (const auto& worker : workers_) {
        if (worker->thread.valid() && worker->thread.wait_until(until) != std::future_status::ready)
            return false;
    }
    return true;
}

}  // namespace trainctl
