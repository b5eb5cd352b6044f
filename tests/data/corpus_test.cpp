#include <algorithm>
#include <set>

#include "data_fixture.h"
#include "support/catch.h"
#include "trainctl/data/fingerprint.h"
#include "trainctl/data/preflight.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

constexpr std::int64_t length = 8;  // T

std::vector<std::int32_t> window_of(const Corpus& corpus, const SampleOrigin& origin) {
    std::vector<std::int32_t> ids(length + 1);
    corpus.read(origin, ids);
    return ids;
}

// Three sources of 12, 5 and 3 + 2 windows; every id is its source and place.
MemoryFileSystem& three_sources(MemoryFileSystem& disk) {
    put_counting(disk, "a.bin", 12 * length + 1 + 3, 0);
    put_counting(disk, "b.bin", 5 * length + 1, 1000);
    put_counting(disk, "c_0.bin", 3 * length + 1 + 7, 2000);
    put_counting(disk, "c_1.bin", 2 * length + 1 + 1, 3000);
    return disk;
}

DataSpec three_weights() { return counting_data({{"a.bin", 0.5}, {"b.bin", 0.3}, {"c_*.bin", 0.2}}); }

JobSpec job_of(const DataSpec& data) {
    JobSpec job;
    job.data = data;
    job.steps = 10;
    job.seed = 5;
    job.model.vocab_size = 10'000;
    job.training.micro_batch_size = 2;
    job.training.global_batch_size = 8;
    job.training.sequence_length = length;
    return job;
}

}  // namespace

TEST_CASE("a window is T + 1 consecutive ids at stride T and the tail is dropped") {
    MemoryFileSystem disk;
    const Corpus corpus(three_sources(disk), three_weights(), {length, 10'000, 1});
    REQUIRE(corpus.train_sources()[0].windows() == 12);
    REQUIRE(corpus.train_sources()[1].windows() == 5);
    REQUIRE(corpus.train_sources()[2].windows() == 5);
    REQUIRE(corpus.windows(Split::Train) == 22);
    for (std::int64_t sample = 0; sample < 300; ++sample) {
        const SampleOrigin origin = corpus.locate(Split::Train, sample);
        std::int64_t base = origin.source * 1000 + (origin.file == 1 ? 1000 : 0);
        const std::int64_t in_file = origin.window - (origin.file == 1 ? 3 : 0);
        REQUIRE(origin.first_token == in_file * length);
        REQUIRE(window_of(corpus, origin) == counting<std::int32_t>(length + 1, base + in_file * length));
    }
}

TEST_CASE("each epoch of each source covers every window exactly once, in another order") {
    MemoryFileSystem disk;
    const Corpus corpus(three_sources(disk), three_weights(), {length, 10'000, 1});
    std::vector<std::vector<std::int64_t>> order(3);
    for (std::int64_t sample = 0; sample < 2048; ++sample) {
        const SampleOrigin origin = corpus.locate(Split::Train, sample);
        auto& seen = order[static_cast<std::size_t>(origin.source)];
        const std::int64_t windows =
            corpus.train_sources()[static_cast<std::size_t>(origin.source)].windows();
        REQUIRE(origin.epoch == static_cast<std::int64_t>(seen.size()) / windows);
        seen.push_back(origin.window);
    }
    for (std::size_t s = 0; s < 3; ++s) {
        const auto windows = static_cast<std::size_t>(corpus.train_sources()[s].windows());
        std::set<std::vector<std::int64_t>> orders;
        for (std::size_t first = 0; first + windows <= order[s].size(); first += windows) {
            std::vector<std::int64_t> epoch(order[s].begin() + static_cast<std::ptrdiff_t>(first),
                                            order[s].begin() + static_cast<std::ptrdiff_t>(first + windows));
            orders.insert(epoch);
            std::sort(epoch.begin(), epoch.end());
            REQUIRE(epoch == counting<std::int64_t>(static_cast<std::int64_t>(windows)));
        }
        REQUIRE(orders.size() > 20);
    }
}

TEST_CASE("another seed gives another order, the same seed the same") {
    MemoryFileSystem disk;
    three_sources(disk);
    const auto order = [&](std::uint64_t seed) {
        const Corpus corpus(disk, three_weights(), {length, 10'000, seed});
        std::vector<std::int64_t> windows;
        for (std::int64_t sample = 0; sample < 100; ++sample)
            windows.push_back(corpus.locate(Split::Train, sample).window);
        return windows;
    };
    REQUIRE(order(1) == order(1));
    REQUIRE(order(1) != order(2));
}

TEST_CASE("validation_split holds out the end of each source and training never reads it") {
    MemoryFileSystem disk;
    DataSpec data = three_weights();
    data.validation_split = 0.2;
    const Corpus corpus(three_sources(disk), data, {length, 10'000, 1});
    REQUIRE(corpus.windows(Split::Validation) == 2 + 1 + 1);
    REQUIRE(corpus.windows(Split::Train) == 10 + 4 + 4);
    std::set<std::pair<int, std::int64_t>> train, validation;
    for (std::int64_t sample = 0; sample < 2000; ++sample) {
        const SampleOrigin origin = corpus.locate(Split::Train, sample);
        train.emplace(origin.source, origin.window);
    }
    for (std::int64_t sample = 0; sample < 4; ++sample) {
        const SampleOrigin origin = corpus.locate(Split::Validation, sample);
        REQUIRE(origin.window >= corpus.train_sources()[static_cast<std::size_t>(origin.source)].train_end);
        validation.emplace(origin.source, origin.window);
        REQUIRE(window_of(corpus, origin).size() == length + 1);
    }
    REQUIRE(train.size() == 18);
    REQUIRE(validation.size() == 4);
    for (const auto& place : validation) REQUIRE(train.count(place) == 0);
    // Always at least one window, never all.
    data.validation_split = 1e-9;
    REQUIRE(Corpus(disk, data, {length, 10'000, 1}).windows(Split::Validation) == 3);
    data.validation_split = 0.95;
    REQUIRE(thrown_by([&] { Corpus(disk, data, {length, 10'000, 1}); }).code == Exit::BadInput);
}

TEST_CASE("validation files are a fixed set, the same for every seed") {
    MemoryFileSystem disk;
    three_sources(disk);
    DataSpec data = counting_data({{"a.bin", 1.0}});
    data.validation = {{"b.bin", 1.0}, {"c_*.bin", 1.0}};
    const auto order = [&](std::uint64_t seed) {
        const Corpus corpus(disk, data, {length, 10'000, seed});
        std::vector<std::vector<std::int32_t>> windows;
        for (std::int64_t i = 0; i < corpus.windows(Split::Validation); ++i) {
            windows.push_back(window_of(corpus, corpus.locate(Split::Validation, i)));
        }
        return windows;
    };
    const auto first = order(1);
    REQUIRE(first.size() == 10);
    REQUIRE(std::set(first.begin(), first.end()).size() == 10);
    REQUIRE(first == order(2));
    data.validation[0].weight = 2.0;
    REQUIRE(thrown_by([&] { order(1); }).code == Exit::Usage);
    data.validation[0].weight = 1.0;
    data.validation_split = 0.1;
    REQUIRE(thrown_by([&] { order(1); }).code == Exit::Usage);
}

TEST_CASE("known failure 59: a file without one window is refused with the numbers, before launch") {
    MemoryFileSystem disk;
    put_counting(disk, "tiny.bin", length, 0);
    const Thrown thrown = thrown_by([&] {
        Corpus(disk, counting_data({{"tiny.bin", 1.0}}), {length, 10'000, 1});
    });
    REQUIRE(thrown.code == Exit::BadInput);
    REQUIRE(contains(thrown.text, "holds 8 tokens, but one sample needs 9"));

    put_counting(disk, "small.bin", 3 * length + 1, 0);
    const Corpus corpus(disk, counting_data({{"small.bin", 1.0}}), {length, 10'000, 1});
    JobSpec job = job_of(counting_data({{"small.bin", 1.0}}));
    job.training.micro_batch_size = 1;
    const Thrown ranks = thrown_by([&] { check_data(corpus, job, 4); });
    REQUIRE(ranks.code == Exit::Usage);
    REQUIRE(contains(ranks.text, "4 data-parallel ranks, but the training data has 3 windows"));
}

TEST_CASE("known failure 51: opening data writes nothing, so ranks and jobs cannot race on a cache") {
    MemoryFileSystem disk;
    three_sources(disk);
    put_megatron(disk, "m", 100, {counting<std::int32_t>(50)});
    const std::uint64_t before = disk.mutations();
    DataSpec data = three_weights();
    data.train.push_back({"m", 1.0});
    const Corpus one(disk, data, {length, 10'000, 1});
    const Corpus two(disk, data, {length, 10'000, 1});
    for (std::int64_t sample = 0; sample < 100; ++sample) {
        REQUIRE(window_of(one, one.locate(Split::Train, sample)) ==
                window_of(two, two.locate(Split::Train, sample)));
    }
    fingerprint(disk, one);
    REQUIRE(disk.mutations() == before);
}

TEST_CASE("the preflight reports and refuses with numbers") {
    MemoryFileSystem disk;
    const DataSpec data = three_weights();
    const Corpus corpus(three_sources(disk), data, {length, 10'000, 1});
    JobSpec job = job_of(data);
    const DataReport report = check_data(corpus, job, 4);
    REQUIRE(report.train_windows == 22);
    REQUIRE(report.samples == 80);
    REQUIRE(report.train[0].per_1024 == 512);
    REQUIRE(report.train[0].epochs == Approx(80 * 0.5 / 12));
    REQUIRE(report.train[2].files == 2);
    REQUIRE(contains(describe(report), "c_*.bin"));

    const Thrown more = thrown_by([&] { check_data(corpus, job, 16); });
    REQUIRE(more.code == Exit::Usage);
    REQUIRE(contains(more.text, "16 data-parallel ranks"));
    const Thrown uneven = thrown_by([&] { check_data(corpus, job, 3); });
    REQUIRE(uneven.code == Exit::Usage);
    REQUIRE(contains(uneven.text, "8 must be a multiple"));
    job.training.eval_interval = 5;
    REQUIRE(thrown_by([&] { check_data(corpus, job, 4); }).code == Exit::Usage);
}

TEST_CASE("the fingerprint follows the data, not its place") {
    MemoryFileSystem disk;
    three_sources(disk);
    put_megatron(disk, "m", 100, {counting<std::int32_t>(50), counting<std::int32_t>(9)});
    const auto id_of = [&](const std::string& first, const std::string& second) {
        return fingerprint(disk,
                           Corpus(disk, counting_data({{first, 1.0}, {second, 1.0}}), {length, 10'000, 1}))
            .id;
    };
    const std::string id = id_of("a.bin", "m");
    disk.put("moved/a2.bin", *disk.contents("a.bin"));
    REQUIRE(id_of("moved/a2.bin", "m") == id);
    REQUIRE(id_of("m", "a.bin") != id);
    disk.flip_bit("moved/a2.bin", 8 * 40);
    REQUIRE(id_of("moved/a2.bin", "m") != id);
    disk.erase("m.bin");
    disk.erase("m.idx");
    put_megatron(disk, "m", 100, {counting<std::int32_t>(49), {0}, counting<std::int32_t>(9)});
    REQUIRE(id_of("a.bin", "m") != id);
    REQUIRE(contains(to_json(fingerprint(disk, Corpus(disk, three_weights(), {length, 10'000, 1}))),
                     "\"c_1.bin\""));
}
