#include "comm/mailbox.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "trainctl/device/captured_error.h"

namespace trainctl {
namespace {

// One started send or receive. Both ends hold it until it is done.
struct Mail {
    int from = 0;
    int tag = 0;
    std::byte* data = nullptr;  // read only for a send
    std::size_t bytes = 0;
    bool wrong_length = false;      // written before `done`
    std::atomic<bool> done{false};  // the bytes have been copied
};

// The mail of one destination. Whoever comes second, sender or receiver, copies, under the lock: so a
// cancelled message is certain not to be touched any more.
class Mailbox {
  public:
    void post_send(const std::shared_ptr<Mail>& mail) { post(mail, receives_, sends_, Side::Send); }
    void post_receive(const std::shared_ptr<Mail>& mail) { post(mail, sends_, receives_, Side::Receive); }
    void cancel(const std::shared_ptr<Mail>& mail) {
        const std::scoped_lock lock(mutex_);
        std::erase(sends_, mail);
        std::erase(receives_, mail);
    }

  private:
    enum class Side { Send, Receive };
    using Queue = std::deque<std::shared_ptr<Mail>>;

    void post(const std::shared_ptr<Mail>& mail, Queue& others, Queue& own, Side side) {
        const std::scoped_lock lock(mutex_);
        for (auto other = others.begin(); other != others.end(); ++other) {
            if ((*other)->from != mail->from || (*other)->tag != mail->tag) continue;
            Mail& send = side == Side::Send ? *mail : **other;
            Mail& receive = side == Side::Send ? **other : *mail;
            if (send.bytes == receive.bytes) {
                if (send.bytes > 0) std::memcpy(receive.data, send.data, send.bytes);
            } else {
                send.wrong_length = receive.wrong_length = true;
            }
            send.done.store(true, std::memory_order_release);
            receive.done.store(true, std::memory_order_release);
            others.erase(other);
            return;
        }
        own.push_back(mail);
    }

    std::mutex mutex_;
    Queue sends_;     // not yet received
    Queue receives_;  // not yet sent
};

struct Room {
    explicit Room(int size) : boxes(static_cast<std::size_t>(size)) {}
    std::vector<Mailbox> boxes;  // by destination
    int to_come = 0;             // members that have not entered; under the registry's mutex
};

}  // namespace

struct InProcessHub::Registry {
    mutable std::mutex mutex;
    std::map<std::string, std::shared_ptr<Room>> rooms;  // with members still to come
    std::shared_ptr<const CapturedError> aborted;
    std::atomic<bool> is_aborted{false};
};

class MailboxTransport final : public Transport {
  public:
    MailboxTransport(std::shared_ptr<InProcessHub> hub, std::string key, std::shared_ptr<Room> room, int rank)
        : hub_(std::move(hub)), key_(std::move(key)), room_(std::move(room)), rank_(rank) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return static_cast<int>(room_->boxes.size()); }

    int send(int to, int tag, const std::byte* data, std::size_t bytes) override {
        // A send never writes through its pointer.
        const int handle = open(to, rank_, tag, const_cast<std::byte*>(data), bytes);
        box(to).post_send(slots_[static_cast<std::size_t>(handle)].mail);
        return handle;
    }

    int receive(int from, int tag, std::byte* data, std::size_t bytes) override {
        const int handle = open(rank_, from, tag, data, bytes);
        box(rank_).post_receive(slots_[static_cast<std::size_t>(handle)].mail);
        return handle;
    }

    void poll() override { hub_->check(); }

    bool finished(int handle) override {
        Slot& slot = slots_[static_cast<std::size_t>(handle)];
        if (!slot.mail->done.load(std::memory_order_acquire)) return false;
        if (slot.mail->wrong_length) {
            fail(Exit::Internal,
                 fmt::format("rank {}: a message from rank {} with tag {} has another length than the "
                             "{} bytes expected: ranks are out of step",
                             rank_, slot.mail->from, slot.mail->tag, slot.mail->bytes));
        }
        release(handle);
        return true;
    }

    void cancel(int handle) noexcept override {
        Slot& slot = slots_[static_cast<std::size_t>(handle)];
        box(slot.destination).cancel(slot.mail);
        release(handle);
    }

    std::unique_ptr<Transport> split(const std::vector<SplitChoice>& choices, int serial) override {
        const int colour = choices[static_cast<std::size_t>(rank_)].colour;
        if (colour < 0) return nullptr;
        const std::vector<int> members = split_members(choices, colour);
        const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
        return hub_->enter(fmt::format("{}/{}:{}", key_, serial, colour), static_cast<int>(place),
                           static_cast<int>(members.size()));
    }

  private:
    struct Slot {
        std::shared_ptr<Mail> mail;
        int destination = 0;
    };

    Mailbox& box(int destination) { return room_->boxes[static_cast<std::size_t>(destination)]; }

    int open(int destination, int from, int tag, std::byte* data, std::size_t bytes) {
        auto mail = std::make_shared<Mail>();
        mail->from = from;
        mail->tag = tag;
        mail->data = data;
        mail->bytes = bytes;
        if (free_.empty()) {
            free_.push_back(static_cast<int>(slots_.size()));
            slots_.emplace_back();
        }
        const int handle = free_.back();
        free_.pop_back();
        slots_[static_cast<std::size_t>(handle)] = {std::move(mail), destination};
        return handle;
    }

    void release(int handle) {
        slots_[static_cast<std::size_t>(handle)].mail.reset();
        free_.push_back(handle);
    }

    std::shared_ptr<InProcessHub> hub_;
    std::string key_;
    std::shared_ptr<Room> room_;
    int rank_;
    std::vector<Slot> slots_;
    std::vector<int> free_;
};

InProcessHub::InProcessHub(int size) : size_(size), registry_(std::make_unique<Registry>()) {}
InProcessHub::~InProcessHub() = default;

void InProcessHub::abort(const Error& error) {
    const std::scoped_lock lock(registry_->mutex);
    if (registry_->aborted) return;
    registry_->aborted = std::make_shared<CapturedError>(error);
    registry_->is_aborted.store(true, std::memory_order_release);
}

void InProcessHub::check() const {
    if (!registry_->is_aborted.load(std::memory_order_acquire)) return;
    const std::scoped_lock lock(registry_->mutex);
    registry_->aborted->raise();
}

std::unique_ptr<Transport> InProcessHub::enter(const std::string& key, int rank, int size) {
    std::shared_ptr<Room> room;
    {
        const std::scoped_lock lock(registry_->mutex);
        std::shared_ptr<Room>& entry = registry_->rooms[key];
        if (!entry) {
            entry = std::make_shared<Room>(size);
            entry->to_come = size;
        }
        room = entry;
        if (--room->to_come == 0) registry_->rooms.erase(key);
    }
    return std::make_unique<MailboxTransport>(shared_from_this(), key, std::move(room), rank);
}

std::shared_ptr<InProcessHub> make_in_process_hub(int size) {
    invariant(size >= 1, "a world has at least one rank");
    return std::make_shared<InProcessHub>(size);
}

}  // namespace trainctl
