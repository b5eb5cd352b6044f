// Pipeline schedules and stages: pure data, so every promise is checked for every small shape.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "support/catch.h"
#include "trainctl/base/error.h"
#include "trainctl/parallel/pipeline_schedule.h"
#include "trainctl/parallel/pipeline_stages.h"

namespace trainctl {
namespace {

using Kind = PipelineAction::Kind;
using Way = PipelineMessage::Way;
using Cargo = PipelineMessage::Cargo;
using Schedules = std::vector<std::vector<PipelineAction>>;  // by stage

Schedules schedules(const PipelineShape& shape) {
    Schedules all;
    for (int stage = 0; stage < shape.stages; ++stage) all.push_back(pipeline_schedule(shape, stage));
    return all;
}

// Every valid shape of up to 5 stages, 3 parts and 12 micro-batches.
std::vector<PipelineShape> shapes() {
    std::vector<PipelineShape> all;
    for (const PipelinePass pass : {PipelinePass::Train, PipelinePass::Evaluate}) {
        for (int stages = 1; stages <= 5; ++stages) {
            for (int micros = 1; micros <= 12; ++micros) {
                all.push_back({PipelineOrder::OneForwardOneBackward, stages, 1, micros, pass});
                if (micros % stages != 0) continue;
                for (int parts = 1; parts <= (stages == 1 ? 1 : 3); ++parts)
                    all.push_back({PipelineOrder::Interleaved, stages, parts, micros, pass});
            }
        }
    }
    return all;
}

std::string describe(const PipelineShape& shape) {
    return fmt::format("{}{}: {} stages x {} parts, {} micro-batches",
                       shape.order == PipelineOrder::Interleaved ? "interleaved" : "1f1b",
                       shape.pass == PipelinePass::Train ? "" : " evaluation", shape.stages, shape.parts,
                       shape.micro_batches);
}

// Every stage runs its actions in order; an exchange ends when every stage that has messages with this one
// under the same number has come to it. Checks that computations find their input, counts what is missing.
struct Run {
    std::set<std::tuple<Kind, int, int>> computed;  // by part of the whole model and micro-batch
    int repeated = 0;
    int without_input = 0;
    int unmatched = 0;
    bool ended = false;
};

Run rendezvous(const PipelineShape& shape, const Schedules& all) {
    Run run;
    std::vector<std::size_t> next(all.size(), 0);
    std::set<std::tuple<Cargo, int, int>> arrived;  // by part of the whole model that reads it
    const int last = shape.stages * shape.parts - 1;
    const auto whole = [&](std::size_t stage, int part) {
        return part * shape.stages + static_cast<int>(stage);
    };
    const auto at = [&](std::size_t stage) {
        return next[stage] < all[stage].size() ? &all[stage][next[stage]] : nullptr;
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t stage = 0; stage < all.size(); ++stage) {
            for (const PipelineAction* action = at(stage);
                 action != nullptr && action->kind != Kind::Exchange; action = at(stage)) {
                const int part = whole(stage, action->part);
                const bool forward = action->kind == Kind::Forward;
                const bool input =
                    forward ? part == 0 || arrived.contains({Cargo::Activation, part, action->micro})
                            : run.computed.contains({Kind::Forward, part, action->micro}) &&
                                  (part == last || arrived.contains({Cargo::Gradient, part, action->micro}));
                if (!input) ++run.without_input;
                if (!run.computed.insert({action->kind, part, action->micro}).second) ++run.repeated;
                ++next[stage];
                moved = true;
            }
        }
        // The stages whose next exchange is the lowest go together: nobody can be ahead of them.
        int lowest = 0;
        for (std::size_t stage = 0; stage < all.size(); ++stage)
            if (at(stage) != nullptr && (lowest == 0 || at(stage)->tick < lowest)) lowest = at(stage)->tick;
        std::multiset<std::tuple<int, int, Cargo, int, int>>
            sent;  // from, to, cargo, receiving part, micro-batch
        std::multiset<std::tuple<int, int, Cargo, int, int>> received;
        for (std::size_t stage = 0; stage < all.size(); ++stage) {
            const PipelineAction* action = at(stage);
            if (action == nullptr || action->tick != lowest) continue;
            std::set<std::pair<Way, int>> peers;
            for (const PipelineMessage& message : action->messages) {
                const int part = whole(stage, message.part);
                const int me = static_cast<int>(stage);
                if (!peers.insert({message.way, message.peer}).second) ++run.unmatched;  // would be ambiguous
                if (message.way == Way::Send) {
                    const int reader = message.cargo == Cargo::Activation ? part + 1 : part - 1;
                    sent.insert({me, message.peer, message.cargo, reader, message.micro});
                } else {
                    received.insert({message.peer, me, message.cargo, part, message.micro});
                    arrived.insert({message.cargo, part, message.micro});
                }
            }
            ++next[stage];
            moved = true;
        }
        if (sent != received) ++run.unmatched;
    }
    run.ended = true;
    for (std::size_t stage = 0; stage < all.size(); ++stage) run.ended = run.ended && at(stage) == nullptr;
    return run;
}

std::string text(const std::vector<PipelineAction>& schedule) {
    std::string words;
    for (const PipelineAction& action : schedule) {
        if (!words.empty()) words += ' ';
        if (action.kind == Kind::Exchange) {
            words += fmt::format("{}[", action.tick);
            for (const PipelineMessage& message : action.messages)
                words += fmt::format("{}{}{}{}", message.way == Way::Send ? '>' : '<',
                                     message.cargo == Cargo::Activation ? 'a' : 'g', message.micro,
                                     message.part > 0 ? fmt::format(".{}", message.part) : "");
            words += ']';
        } else {
            words += fmt::format("{}{}{}", action.kind == Kind::Forward ? 'F' : 'B', action.micro,
                                 action.part > 0 ? fmt::format(".{}", action.part) : "");
        }
    }
    return words;
}

ModelSpec blocks(std::int64_t layers, std::int64_t vocabulary) {
    ModelSpec model;
    model.architecture = Architecture::Llama;
    model.layers = layers;
    model.hidden_size = 64;
    model.heads = 4;
    model.kv_heads = 4;
    model.head_dim = 16;
    model.ffn_size = 192;
    model.vocab_size = vocabulary;
    model.max_sequence_length = 32;
    return model;
}

std::vector<int> block_counts(const std::vector<UnitRun>& parts) {
    std::vector<int> counts;
    for (const UnitRun& part : parts) counts.push_back(part.end - part.begin);
    --counts.front();  // the embedding
    --counts.back();   // the head
    return counts;
}

TEST_CASE("Schedules compute everything once, in order, and end when every message is a rendezvous") {
    for (const PipelineShape& shape : shapes()) {
        INFO(describe(shape));
        const Run run = rendezvous(shape, schedules(shape));
        REQUIRE(run.ended);
        REQUIRE(run.repeated == 0);
        REQUIRE(run.without_input == 0);
        REQUIRE(run.unmatched == 0);
        const int passes = shape.pass == PipelinePass::Train ? 2 : 1;
        REQUIRE(run.computed.size() ==
                static_cast<std::size_t>(passes * shape.stages * shape.parts * shape.micro_batches));
    }
}

TEST_CASE("Micro-batches of one part go forward, and backward, in order: sums of gradients have one order") {
    for (const PipelineShape& shape : shapes()) {
        INFO(describe(shape));
        for (const auto& schedule : schedules(shape)) {
            std::map<std::pair<Kind, int>, int> newest;
            for (const PipelineAction& action : schedule) {
                if (action.kind == Kind::Exchange) continue;
                const auto [at, first] = newest.emplace(std::pair(action.kind, action.part), action.micro);
                if (first) REQUIRE(action.micro == 0);
                if (!first) REQUIRE(action.micro == ++at->second);
            }
        }
    }
}

TEST_CASE("States in flight are what the schedule promises, and a slot has one micro-batch at a time") {
    for (const PipelineShape& shape : shapes()) {
        if (shape.pass != PipelinePass::Train) continue;
        INFO(describe(shape));
        const Schedules all = schedules(shape);
        for (int stage = 0; stage < shape.stages; ++stage) {
            const auto& schedule = all[static_cast<std::size_t>(stage)];
            std::map<std::pair<int, int>, int> slots;  // part and slot: micro-batch
            int most = 0;
            for (const PipelineAction& action : schedule) {
                if (action.kind == Kind::Forward) {
                    REQUIRE(slots.emplace(std::pair(action.part, action.slot), action.micro).second);
                } else if (action.kind == Kind::Backward) {
                    REQUIRE(slots.at({action.part, action.slot}) == action.micro);
                    slots.erase({action.part, action.slot});
                }
                most = std::max(most, static_cast<int>(slots.size()));
            }
            REQUIRE(slots.empty());
            if (shape.order == PipelineOrder::OneForwardOneBackward) {
                const int promised = std::min(shape.stages - stage, shape.micro_batches);
                REQUIRE(most == promised);
                REQUIRE(flight_slots(schedule) == promised);
                REQUIRE(micro_batches_held(schedule) == promised);
            } else {
                const int ahead = 2 * (shape.stages - 1 - stage) + (shape.parts - 1) * shape.stages + 1;
                REQUIRE(most == std::min(ahead, shape.parts * shape.micro_batches));
                REQUIRE(flight_slots(schedule) <= most);
                REQUIRE(micro_batches_held(schedule) <= std::min(most, shape.micro_batches));
            }
        }
    }
}

TEST_CASE("Idle time is the textbook's: as long as stages - 1 micro-batches, divided by the parts") {
    for (const PipelineShape& shape : shapes()) {
        INFO(describe(shape));
        const int passes = shape.pass == PipelinePass::Train ? 2 : 1;
        int end = 0;
        for (const auto& schedule : schedules(shape))
            for (const PipelineAction& action : schedule)
                if (action.kind != Kind::Exchange) end = std::max(end, action.tick);
        // In computations of one part; every stage has work for the first term of it.
        CHECK(end == passes * (shape.micro_batches * shape.parts + shape.stages - 1));
    }
}

TEST_CASE("Schedules written out") {
    const PipelineShape two{PipelineOrder::OneForwardOneBackward, 2, 1, 3};
    CHECK(text(pipeline_schedule(two, 0)) == "F0 1[>a0] F1 2[>a1] 3[<g0] B0 F2 5[>a2<g1] B1 7[<g2] B2");
    CHECK(text(pipeline_schedule(two, 1)) == "1[<a0] F0 2[<a1] B0 3[>g0] F1 B1 5[>g1<a2] F2 B2 7[>g2]");
    const PipelineShape alone{PipelineOrder::OneForwardOneBackward, 1, 1, 2};
    CHECK(text(pipeline_schedule(alone, 0)) == "F0 B0 F1 B1");
    const PipelineShape interleaved{PipelineOrder::Interleaved, 2, 2, 2};
    CHECK(text(pipeline_schedule(interleaved, 0)) ==
          "F0 1[>a0] F1 2[>a1<a0.1] F0.1 3[>a0.1<a1.1] F1.1 4[>a1.1] 5[<g0.1] B0.1 6[>g0.1] 7[<g1.1] B1.1 "
          "8[>g1.1<g0] B0 9[<g1] B1");
    CHECK(text(pipeline_schedule(interleaved, 1)) ==
          "1[<a0] F0 2[>a0<a1] F1 3[>a1<a0.1] F0.1 4[<a1.1] B0.1 5[>g0.1] F1.1 6[<g0] B1.1 7[>g1.1] B0 "
          "8[>g0<g1] B1 9[>g1]");
}

TEST_CASE("What cannot be scheduled is refused with the numbers") {
    const auto refuses = [](const PipelineShape& shape, const std::vector<std::string>& numbers) {
        try {
            pipeline_schedule(shape, 0);
            FAIL("was not refused");
        } catch (const Error& error) {
            CHECK(error.code() == Exit::Usage);
            for (const std::string& number : numbers) CHECK_THAT(error.what(), Catch::Contains(number));
        }
    };
    refuses({PipelineOrder::Interleaved, 4, 2, 6}, {"multiple of 4", "found 6"});
    refuses({PipelineOrder::OneForwardOneBackward, 4, 2, 8}, {"2 model parts", "4 pipeline stages"});
    refuses({PipelineOrder::Interleaved, 1, 2, 8}, {"2 model parts", "1 pipeline stages"});
}

TEST_CASE("Parts cover the model in order, with blocks where there is least work") {
    for (const std::int64_t layers : {1, 2, 5, 12, 23}) {
        for (int parts = 1; parts <= layers; ++parts) {
            const auto runs = pipeline_parts(blocks(layers, 100), 32, parts);
            REQUIRE(runs.size() == static_cast<std::size_t>(parts));
            UnitId next = 0;
            for (const UnitRun& run : runs) {
                REQUIRE(run.begin == next);
                next = run.end;
            }
            REQUIRE(next == layers + 2);
            const auto counts = block_counts(runs);
            REQUIRE(*std::min_element(counts.begin(), counts.end()) >= 1);
            REQUIRE(*std::max_element(counts.begin(), counts.end()) -
                        *std::min_element(counts.begin(), counts.end()) <=
                    1);
        }
    }
    // Later parts hold fewer micro-batches in flight; a head as large as blocks takes their place.
    CHECK(block_counts(pipeline_parts(blocks(7, 100), 32, 3)) == std::vector<int>{2, 3, 2});
    CHECK(block_counts(pipeline_parts(blocks(8, 100), 32, 2)) == std::vector<int>{4, 4});
    CHECK(block_counts(pipeline_parts(blocks(8, 1800), 32, 2)) == std::vector<int>{5, 3});
    CHECK(block_counts(pipeline_parts(blocks(8, 1000000), 32, 2)) == std::vector<int>{7, 1});
    CHECK_THROWS_WITH(pipeline_parts(blocks(3, 100), 32, 4), Catch::Contains("model.layers 3") &&
                                                                 Catch::Contains("4 parts") &&
                                                                 Catch::Contains("at most 3"));
    const auto parts = pipeline_parts(blocks(8, 100), 32, 4);
    CHECK(stage_parts(parts, 1, 2) == std::vector<UnitRun>{parts[1], parts[3]});
}

}  // namespace
}  // namespace trainctl
