#include "cuda_double/block_engine.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <sstream>
#include <vector>

namespace trainctl::cuda_double {
namespace {

namespace context = boost::context;

constexpr unsigned warp_size = 32;
constexpr std::size_t stack_bytes = std::size_t{128} << 10U;
constexpr std::size_t most_shared_bytes = std::size_t{227} << 10U;  // of a block, on the largest devices
constexpr std::size_t shared_room = std::size_t{256} << 10U;
constexpr std::size_t page = 4096;

struct Fetch {
    void* to;
    const void* from;
    std::size_t bytes;
};

struct Lane {
    enum class State : std::uint8_t { Unstarted, Ready, AtWarp, AtBlock, Done };
    State state = State::Unstarted;
    uint3 index{};
    unsigned number = 0;  // in the block
    const char* meeting = "";
    void* payload = nullptr;
    struct Worker* worker = nullptr;  // where it is suspended
    std::vector<Fetch> fetches;       // not committed yet
    std::deque<std::vector<Fetch>> groups;
};

// A fiber that runs lanes from start to end, or until one of them suspends.
struct Worker {
    context::fiber fiber;
    context::fiber scheduler;
};

class Engine {
  public:
    Engine() {
        void* room =
            mmap(nullptr, shared_room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED) throw std::bad_alloc();
        shared_end_ = static_cast<std::byte*>(room) + shared_room;
        mprotect(shared_end_, page, PROT_NONE);
        shared_ = shared_end_;
    }
    ~Engine() { munmap(shared_end_ - shared_room, shared_room + page); }
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    void run(const char* name, const KernelShape& shape, std::uint64_t seed,
             const std::function<void()>& thread);

    void meet_block() { suspend(Lane::State::AtBlock, "sync_block"); }

    void meet_warp(const char* what, void* payload, const std::function<void(const Payloads&)>& act) {
        current->payload = payload;
        current->meeting = what;
        const unsigned first = current->number / warp_size * warp_size;
        if (first + warp_size > lanes_.size())
            raise("calls " + std::string(what) + " in a warp of less than 32 threads");
        ++arrived_;
        if (arrived_ < warp_size) {
            suspend(Lane::State::AtWarp, what);
            return;
        }
        Payloads payloads;
        for (unsigned i = 0; i < warp_size; ++i) {
            Lane& lane = lanes_[first + i];
            if (std::strcmp(lane.meeting, what) != 0) {
                raise("is in " + std::string(what) + " while lane " + std::to_string(i) +
                      " of its warp is in " + lane.meeting);
            }
            payloads[i] = lane.payload;
        }
        act(payloads);
        arrived_ = 0;
        for (unsigned i = 0; i < warp_size; ++i) {
            if (&lanes_[first + i] != current) lanes_[first + i].state = Lane::State::Ready;
        }
    }

    [[noreturn]] void raise(const std::string& what) {
        fault_ = what;
        faulty_ = current->number;
        Worker& worker = *working_;
        worker.scheduler = std::move(worker.scheduler).resume();
        __builtin_unreachable();
    }

    Lane* current = nullptr;
    uint3 block_index{};
    KernelShape shape;
    std::byte* shared() const { return shared_; }
    bool running = false;

  private:
    void run_block(const std::function<void()>& thread);
    void run_warp(unsigned first, const std::function<void()>& thread);
    void step(Lane* lane);
    void suspend(Lane::State state, const char* meeting);
    Worker* idle_worker();
    [[noreturn]] void stuck();
    [[noreturn]] void report(const std::string& what, unsigned lane);

    const char* name_ = "";
    std::mt19937_64 random_;
    std::vector<Lane> lanes_;
    std::vector<unsigned> order_;  // of the lanes of the warp that runs
    std::size_t next_ = 0;         // in order_: the next lane to start
    unsigned arrived_ = 0;         // lanes of the running warp at a warp function
    const std::function<void()>* thread_ = nullptr;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<Worker*> idle_;
    Worker* working_ = nullptr;
    std::byte* shared_end_ = nullptr;
    std::byte* shared_ = nullptr;
    std::string fault_;
    unsigned faulty_ = 0;
};

thread_local Engine engine;

// A worker that has no lane left hands itself back and waits for the next use.
Worker* Engine::idle_worker() {
    if (!idle_.empty()) {
        Worker* worker = idle_.back();
        idle_.pop_back();
        return worker;
    }
    workers_.push_back(std::make_unique<Worker>());
    Worker* worker = workers_.back().get();
    worker->fiber = context::fiber(std::allocator_arg, context::fixedsize_stack(stack_bytes),
                                   [this, worker](context::fiber&& scheduler) {
                                       worker->scheduler = std::move(scheduler);
                                       for (;;) {
                                           while (next_ < order_.size()) {
                                               Lane& lane = lanes_[order_[next_++]];
                                               current = &lane;
                                               lane.state = Lane::State::Ready;
                                               (*thread_)();
                                               lane.state = Lane::State::Done;
                                               // Its lanes go on elsewhere once this one has resumed a
                                               // suspended lane.
                                               if (lane.worker != nullptr) break;
                                           }
                                           idle_.push_back(worker);
                                           worker->scheduler = std::move(worker->scheduler).resume();
                                       }
                                       return std::move(worker->scheduler);
                                   });
    return worker;
}

void Engine::step(Lane* lane) {
    Worker* worker = lane == nullptr ? idle_worker() : lane->worker;
    working_ = worker;
    if (lane != nullptr) current = lane;
    worker->fiber = std::move(worker->fiber).resume();
    if (!fault_.empty()) report(fault_, faulty_);
}

void Engine::suspend(Lane::State state, const char* meeting) {
    Lane* me = current;
    Worker* worker = working_;
    me->state = state;
    me->meeting = meeting;
    me->worker = worker;
    worker->scheduler = std::move(worker->scheduler).resume();
}

void Engine::run_warp(unsigned first, const std::function<void()>& /*thread*/) {
    const unsigned end = std::min<unsigned>(first + warp_size, static_cast<unsigned>(lanes_.size()));
    order_.clear();
    next_ = 0;
    for (unsigned i = first; i < end; ++i) {
        if (lanes_[i].state == Lane::State::Unstarted) order_.push_back(i);
    }
    std::shuffle(order_.begin(), order_.end(), random_);
    for (;;) {
        if (next_ < order_.size()) {
            step(nullptr);
            continue;
        }
        std::array<unsigned, warp_size> ready;
        unsigned count = 0;
        for (unsigned i = first; i < end; ++i) {
            if (lanes_[i].state == Lane::State::Ready) ready[count++] = i;
        }
        if (count == 0) break;
        std::shuffle(ready.begin(), ready.begin() + count, random_);
        for (unsigned i = 0; i < count; ++i) step(&lanes_[ready[i]]);
    }
    if (arrived_ > 0) stuck();
}

// Somebody waits in a warp function that others of the warp will not reach.
void Engine::stuck() {
    const Lane* waiting = nullptr;
    const Lane* other = nullptr;
    for (const Lane& lane : lanes_) {
        if (lane.state == Lane::State::AtWarp) waiting = &lane;
    }
    const unsigned first = waiting->number / warp_size * warp_size;
    for (unsigned i = first; i < first + warp_size; ++i) {
        if (lanes_[i].state != Lane::State::AtWarp) other = &lanes_[i];
    }
    report("waits in " + std::string(waiting->meeting) + " for lane " +
               std::to_string(other->number % warp_size) +
               (other->state == Lane::State::Done ? ", which has returned" : ", which is in sync_block"),
           waiting->number);
}

void Engine::run_block(const std::function<void()>& thread) {
    const dim3 block = shape.block;
    const unsigned count = block.x * block.y * block.z;
    lanes_.assign(count, {});
    for (unsigned i = 0; i < count; ++i) {
        lanes_[i].number = i;
        lanes_[i].index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    }
    shared_ = shared_end_ - (shape.shared_bytes + 15) / 16 * 16;
    std::memset(shared_, 0xFF, static_cast<std::size_t>(shared_end_ - shared_));
    arrived_ = 0;
    std::vector<unsigned> warps((count + warp_size - 1) / warp_size);
    for (unsigned i = 0; i < warps.size(); ++i) warps[i] = i * warp_size;
    for (;;) {
        std::shuffle(warps.begin(), warps.end(), random_);
        for (const unsigned first : warps) run_warp(first, thread);
        const auto waiting = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
            return lane.state == Lane::State::AtBlock;
        });
        if (waiting == lanes_.end()) return;
        for (Lane& lane : lanes_) {
            if (lane.state != Lane::State::AtBlock)
                report(
                    "waits in sync_block for thread " + std::to_string(lane.number) + ", which has returned",
                    waiting->number);
            lane.state = Lane::State::Ready;
        }
    }
}

void Engine::report(const std::string& what, unsigned lane) {
    // Fibers that were left in the middle of a kernel are of no more use; their stacks are let go with them
    // unopened, since nothing on them needs an end.
    for (auto& worker : workers_) static_cast<void>(worker.release());
    workers_.clear();
    idle_.clear();
    std::ostringstream text;
    const uint3 index = lane < lanes_.size() ? lanes_[lane].index : uint3{};
    text << "kernel " << name_ << ", block (" << block_index.x << ", " << block_index.y << ", "
         << block_index.z << "), thread (" << index.x << ", " << index.y << ", " << index.z << ") " << what;
    fault_.clear();
    throw KernelFault(text.str());
}

// ---- faults ----

thread_local std::array<char, 64> fault_text;

[[noreturn]] void land_on_fault() { engine.raise(fault_text.data()); }

// Only faults of kernels are ours. The fiber goes on in land_on_fault, on its own stack.
struct sigaction previous_handler;

void on_fault(int signal, siginfo_t* info, void* raw) {
    if (!engine.running) {
        sigaction(signal, &previous_handler, nullptr);
        return;  // the instruction faults again, for whoever was there before
    }
    std::snprintf(fault_text.data(), fault_text.size(), "touches %p, which is not memory it may touch",
                  info->si_addr);
    auto& registers = static_cast<ucontext_t*>(raw)->uc_mcontext.gregs;
    const auto red_zone = 256;
    registers[REG_RSP] = ((registers[REG_RSP] - red_zone) & ~0xFLL) - 8;
    registers[REG_RIP] = reinterpret_cast<greg_t>(&land_on_fault);
}

// While a kernel runs on this thread. Others' handlers (a test runner's) are in place otherwise.
class FaultGuard {
  public:
    FaultGuard() {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_NODEFER;
        struct sigaction before = {};
        sigaction(SIGSEGV, &action, &before);
        if (before.sa_sigaction != on_fault) previous_handler = before;
    }
};

void Engine::run(const char* name, const KernelShape& wanted, std::uint64_t seed,
                 const std::function<void()>& thread) {
    name_ = name;
    shape = wanted;
    thread_ = &thread;
    random_.seed(seed);
    const std::size_t blocks = std::size_t{shape.grid.x} * shape.grid.y * shape.grid.z;
    const std::size_t threads = std::size_t{shape.block.x} * shape.block.y * shape.block.z;
    lanes_.clear();
    if (blocks == 0 || threads == 0 || threads > 1024 || shape.grid.y > 65535 || shape.grid.z > 65535 ||
        shape.shared_bytes > most_shared_bytes) {
        report("cannot start: " + std::to_string(blocks) + " blocks of " + std::to_string(threads) +
                   " threads with " + std::to_string(shape.shared_bytes) + " bytes of shared memory",
               0);
    }
    std::vector<std::size_t> order(blocks);
    for (std::size_t i = 0; i < blocks; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    const FaultGuard guard;
    running = true;
    struct Stop {
        ~Stop() { engine.running = false; }
    } const stop;
    for (const std::size_t block : order) {
        block_index = {static_cast<unsigned>(block % shape.grid.x),
                       static_cast<unsigned>(block / shape.grid.x % shape.grid.y),
                       static_cast<unsigned>(block / (std::size_t{shape.grid.x} * shape.grid.y))};
        run_block(thread);
    }
}

void arrive(const std::vector<Fetch>& group) {
    for (const Fetch& fetch : group) {
        if (fetch.from == nullptr) {
            std::memset(fetch.to, 0, fetch.bytes);
        } else {
            std::memcpy(fetch.to, fetch.from, fetch.bytes);
        }
    }
}

}  // namespace

void run_kernel(const char* name, const KernelShape& shape, std::uint64_t seed,
                const std::function<void()>& thread) {
    engine.run(name, shape, seed, thread);
}

const uint3& thread_index() { return engine.current->index; }
const uint3& block_index() { return engine.block_index; }
const dim3& block_shape() { return engine.shape.block; }
const dim3& grid_shape() { return engine.shape.grid; }
int lane_index() { return static_cast<int>(engine.current->number % warp_size); }
std::byte* shared_bytes() { return engine.shared(); }
void meet_block() { engine.meet_block(); }

void meet_warp(const char* what, void* payload, const std::function<void(const Payloads&)>& act) {
    engine.meet_warp(what, payload, act);
}

void fetch_later(void* to, const void* from, std::size_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 ||
        reinterpret_cast<std::uintptr_t>(from) % bytes != 0)
        engine.raise("fetches " + std::to_string(bytes) + " bytes to or from an address not aligned to them");
    engine.current->fetches.push_back({to, from, bytes});
}

void commit_fetches() {
    Lane& lane = *engine.current;
    lane.groups.push_back(std::move(lane.fetches));
    lane.fetches.clear();
}

void wait_for_fetches(int newest) {
    Lane& lane = *engine.current;
    while (static_cast<int>(lane.groups.size()) > newest) {
        arrive(lane.groups.front());
        lane.groups.pop_front();
    }
}

}  // namespace trainctl::cuda_double
