#include "comm/operation.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string>

#include "trainctl/base/text.h"

namespace trainctl {

CommOperation::CommOperation(std::shared_ptr<CommCore> core, const char* what, std::size_t bytes,
                             unsigned sequence)
    : core_(std::move(core)),
      what_(what),
      bytes_(bytes),
      sequence_(sequence),
      rank_(core_->transport->rank()),
      size_(core_->transport->size()) {}

CommOperation::~CommOperation() {
    for (const Open& open : open_) core_->transport->cancel(open.handle);
}

bool CommOperation::advance() {
    if (core_->given_up) {
        fail(Exit::Peer, fmt::format("{} on communicator '{}' was given up", what_, core_->name));
    }
    if (last_progress_.time_since_epoch().count() == 0) last_progress_ = std::chrono::steady_clock::now();
    core_->transport->poll();
    bool progressed = true;
    while (progressed) {
        progressed = retire();
        if (step()) return true;
        // What step() has started may be finished already: peers in the same process.
    }
    check_deadline();
    return false;
}

void CommOperation::send(int to, int tag, const std::byte* data, std::size_t bytes, std::int64_t cookie) {
    open_.push_back({core_->transport->send(to, tag, data, bytes), to, Direction::Send, cookie});
}

void CommOperation::receive(int from, int tag, std::byte* data, std::size_t bytes, std::int64_t cookie) {
    open_.push_back({core_->transport->receive(from, tag, data, bytes), from, Direction::Receive, cookie});
}

void CommOperation::send_pieces(int to, int tag, const std::byte* data, std::size_t bytes) {
    std::size_t begin = 0;
    do {
        const std::size_t piece = std::min(bytes - begin, core_->options.tuning.message_bytes);
        send(to, tag, data + begin, piece);
        begin += piece;
    } while (begin < bytes);
}

void CommOperation::receive_pieces(int from, int tag, std::byte* data, std::size_t bytes) {
    std::size_t begin = 0;
    do {
        const std::size_t piece = std::min(bytes - begin, core_->options.tuning.message_bytes);
        receive(from, tag, data + begin, piece);
        begin += piece;
    } while (begin < bytes);
}

bool CommOperation::retire() {
    bool any = false;
    for (std::size_t i = 0; i < open_.size();) {
        const Open open = open_[i];
        if (!core_->transport->finished(open.handle)) {
            ++i;
            continue;
        }
        open_[i] = open_.back();
        open_.pop_back();
        any = true;
        if (open.direction == Direction::Send) {
            sent(open.peer, open.cookie);
        } else {
            received(open.peer, open.cookie);
        }
    }
    if (any) last_progress_ = std::chrono::steady_clock::now();
    return any;
}

void CommOperation::check_deadline() {
    const std::chrono::duration<double> silent = std::chrono::steady_clock::now() - last_progress_;
    if (silent.count() <= core_->options.timeout_s) return;
    std::set<int> missing;
    const auto collect = [&](Direction direction) {
        for (const Open& open : open_) {
            if (open.direction == direction) missing.insert(open.peer);
        }
    };
    collect(Direction::Receive);  // a peer that does not send is late itself; one that does not take may
                                  // wait, too
    const bool receiving = !missing.empty();
    if (!receiving) collect(Direction::Send);
    std::string names;
    int named = 0;
    for (const int member : missing) {
        if (++named > 8) {
            names += fmt::format(" and {} more", missing.size() - 8);
            break;
        }
        names += (named == 1 ? "" : ", ") + core_->describe(member);
    }
    fail(Exit::Peer,
         fmt::format(
             "communicator '{}': {} of {} (number {}) made no progress for {}: {} {}. That process has died, "
             "hangs, or is slower than communication.timeout_s allows; look at its log and its host, then "
             "start again with --resume auto",
             core_->name, what_, format_bytes(bytes_), sequence_, format_duration(core_->options.timeout_s),
             receiving ? "nothing came from" : "nothing was taken by",
             names.empty() ? "an unknown rank" : names));
}

std::string CommCore::describe(int member) const {
    const int world_rank = world_ranks.at(static_cast<std::size_t>(member));
    const auto index = static_cast<std::size_t>(world_rank);
    if (hosts && index < hosts->size()) return fmt::format("rank {} ({})", world_rank, (*hosts)[index]);
    return fmt::format("rank {}", world_rank);
}

std::vector<int> split_members(const std::vector<SplitChoice>& choices, int colour) {
    std::vector<int> members;
    for (std::size_t i = 0; i < choices.size(); ++i) {
        if (choices[i].colour == colour) members.push_back(static_cast<int>(i));
    }
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
        return choices[static_cast<std::size_t>(a)].key < choices[static_cast<std::size_t>(b)].key;
    });
    return members;
}

}  // namespace trainctl
