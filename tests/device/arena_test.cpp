#include "trainctl/device/arena.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <random>

#include "support/catch.h"
#include "trainctl/device/cpu_device.h"

using namespace trainctl;

namespace {

// A random pass: allocations and releases in stack, queue and arbitrary order.
struct Pass {
    std::vector<int> actions;  // >= 0: allocate that many bytes; < 0: release the (-1 - a)-th live tensor
};

Pass random_pass(std::mt19937& random, int length) {
    Pass pass;
    int live = 0;
    for (int i = 0; i < length; ++i) {
        if (live > 0 && random() % 2 == 0) {
            pass.actions.push_back(-1 - static_cast<int>(random() % static_cast<unsigned>(live--)));
        } else {
            pass.actions.push_back(static_cast<int>(random() % (random() % 4 == 0 ? 20000 : 600)));
            ++live;
        }
    }
    for (; live > 0; --live) pass.actions.push_back(-1);
    return pass;
}

// Plays the pass; every address handed out, in order.
std::vector<std::byte*> play(Arena& arena, PassKind kind, const Pass& pass) {
    std::vector<std::byte*> all;
    std::vector<std::byte*> live;
    arena.begin(kind);
    for (const int action : pass.actions) {
        if (action >= 0) {
            all.push_back(arena.allocate(static_cast<std::size_t>(action)));
            live.push_back(all.back());
        } else {
            arena.release(live[static_cast<std::size_t>(-1 - action)]);
            live.erase(live.begin() - 1 - action);
        }
    }
    arena.end();
    return all;
}

}  // namespace

TEST_CASE("planned slots that live together never overlap, and the peak is what is needed") {
    std::mt19937 random(7);
    for (int round = 0; round < 60; ++round) {
        const auto recording = make_recording_arena();
        play(*recording, PassKind::FirstMicro, random_pass(random, 120));
        play(*recording, PassKind::Evaluation, random_pass(random, 40));
        const ArenaPlan plan = recording->plan();
        std::size_t highest = 0;
        std::size_t most_live = 0;
        for (const auto& slots : plan.passes) {
            for (const ArenaSlot& a : slots) {
                REQUIRE(a.offset % Arena::alignment == 0);
                REQUIRE(a.born < a.dies);
                highest = std::max(highest, a.offset + a.bytes);
                std::size_t live = 0;
                for (const ArenaSlot& b : slots) {
                    const bool together = a.born < b.dies && b.born < a.dies;
                    if (b.born <= a.born && a.born < b.dies) live += b.bytes;
                    if (&a == &b || !together) continue;
                    const std::size_t a_end = a.offset + std::max<std::size_t>(a.bytes, 1);
                    const std::size_t b_end = b.offset + std::max<std::size_t>(b.bytes, 1);
                    REQUIRE((a_end <= b.offset || b_end <= a.offset));
                }
                most_live = std::max(most_live, live);
            }
        }
        REQUIRE(plan.peak_bytes >= highest);
        REQUIRE(plan.peak_bytes < highest + Arena::alignment);
        REQUIRE(plan.peak_bytes >= most_live);
        REQUIRE(plan.peak_bytes <= most_live * 3 / 2 + 60 * Arena::alignment);  // fragmentation stays small
    }
}

TEST_CASE("stack-like lifetimes, as in training, are planned without any waste") {
    const auto recording = make_recording_arena();
    recording->begin(PassKind::OnlyMicro);
    std::vector<std::byte*> saved;
    for (int layer = 0; layer < 12; ++layer) {
        saved.push_back(recording->allocate(4096));
        std::byte* scratch = recording->allocate(8192);
        recording->release(scratch);
    }
    for (; !saved.empty(); saved.pop_back()) recording->release(saved.back());
    recording->end();
    CHECK(recording->plan().peak_bytes == 12 * 4096 + 8192);
}

TEST_CASE("a pass as long as a pipeline's whole step is planned in no time and without waste") {
    constexpr std::size_t gib = std::size_t{1} << 30U;  // 60 TB in all: more than the reserved addresses
    const auto recording = make_recording_arena();
    recording->begin(PassKind::PipelineStep);
    std::deque<std::byte*> in_flight;
    for (int micro = 0; micro < 20000; ++micro) {
        in_flight.push_back(recording->allocate(gib));
        std::byte* scratch = recording->allocate(2 * gib);
        if (in_flight.size() == 4) {
            recording->release(in_flight.front());
            in_flight.pop_front();
        }
        recording->release(scratch);
    }
    for (std::byte* state : in_flight) recording->release(state);
    recording->end();
    const auto began = std::chrono::steady_clock::now();
    CHECK(recording->plan().peak_bytes == 4 * gib + 2 * gib);
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
}

TEST_CASE("replay hands out the planned places in one buffer, again and again") {
    std::mt19937 random(11);
    const Pass first = random_pass(random, 100);
    const Pass last = random_pass(random, 30);
    const auto recording = make_recording_arena();
    play(*recording, PassKind::FirstMicro, first);
    play(*recording, PassKind::LastMicro, last);
    const ArenaPlan plan = recording->plan();

    const auto device = make_cpu_device({});
    const auto arena = make_replay_arena(*device, plan);
    const auto allocations = device->memory_use().allocations;
    CHECK(device->memory_use().device_bytes == plan.peak_bytes);
    for (int round = 0; round < 3; ++round) {
        const auto places = play(*arena, PassKind::FirstMicro, first);
        const auto& slots = plan.passes[static_cast<int>(PassKind::FirstMicro)];
        REQUIRE(places.size() == slots.size());
        for (std::size_t i = 1; i < places.size(); ++i) {
            REQUIRE(places[i] - places[0] == static_cast<std::ptrdiff_t>(slots[i].offset) -
                                                 static_cast<std::ptrdiff_t>(slots[0].offset));
        }
        play(*arena, PassKind::LastMicro, last);
    }
    CHECK(device->memory_use().allocations == allocations);
}

TEST_CASE("replay refuses whatever differs from the recording") {
    const Pass recorded{{100, 200, -1, 300, -1, -1}};
    const auto recording = make_recording_arena();
    play(*recording, PassKind::InnerMicro, recorded);
    const auto device = make_cpu_device({});
    const auto arena = make_replay_arena(*device, recording->plan());
    const auto differs = [&](const Pass& pass, const std::string& how) {
        CHECK_THROWS_WITH(play(*arena, PassKind::InnerMicro, pass),
                          Catch::Contains("inner micro-batch") && Catch::Contains(how));
    };
    differs({{101, 200, -1, 300, -1, -1}}, "sequence number 0");           // size
    differs({{100, 200, -2, 300, -1, -1}}, "sequence number 2");           // which one is released
    differs({{100, -1, 200, 300, -1, -1}}, "sequence number 1");           // order
    differs({{100, 200, -1, 300, -1, -1, 5, -1}}, "after the last");       // one more
    differs({{100, 200, -1}}, "2 of 3");                                   // one fewer
    CHECK_NOTHROW(play(*arena, PassKind::InnerMicro, recorded));           // and is usable afterwards
    CHECK_THROWS_AS(play(*arena, PassKind::FirstMicro, recorded), Error);  // never recorded
}

TEST_CASE("a recording must release everything, and survives an exception in the pass") {
    const auto recording = make_recording_arena();
    recording->begin(PassKind::OnlyMicro);
    std::byte* data = recording->allocate(10);
    CHECK_THROWS_WITH(recording->end(), Catch::Contains("1 tensors were not released"));
    recording->release(data);
    recording->end();
    CHECK(recording->plan().peak_bytes == Arena::alignment);

    try {
        recording->begin(PassKind::OnlyMicro);
        const ArenaScope scope(*recording, 64);
        throw Error(Exit::Peer, "a peer died", Where::here());
    } catch (const Error&) {
    }
    CHECK_NOTHROW(play(*recording, PassKind::OnlyMicro, {{1, -1}}));
}
