// How ranks come to one table of choices, on plans that only remember.
#include "trainctl/train/product_tuning.h"

#include <array>
#include <map>
#include <mutex>
#include <set>

#include "support/catch.h"
#include "support/manual_clock.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "trainctl/base/error.h"
#include "trainctl/device/sim_device.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

Product sized(std::int64_t m) { return {MatmulKind::Forward, m, 8, 8, DType::BF16, DType::BF16, false}; }

// Tuning chooses "best-<m>"; algorithms in `refused` are none of this library.
class RememberingPlans final : public ProductPlans {
  public:
    RememberingPlans(std::string identity, std::set<std::string> refused)
        : identity_(std::move(identity)), refused_(std::move(refused)) {}
    [[nodiscard]] std::string identity() const override { return identity_; }
    void prepare(const std::vector<Product>& products) override {
        for (const Product& product : products) in_use.try_emplace(product, "first");
    }
    TuningReport tune(const std::vector<Product>& products, Stream& /*stream*/, Clock& /*clock*/,
                      TuningLimits limits) override {
        TuningReport report;
        limit_s = limits.seconds;
        for (const Product& product : products) {
            in_use[product] = "best-" + std::to_string(product.m);
            tuned.push_back(product.m);
            ++report.compared;
            ++report.changed;
        }
        report.best_gain = 0.25;
        report.seconds = 1.5;
        report.discarded = {"one that is odd", "another"};
        return report;
    }
    [[nodiscard]] std::string algorithm(const Product& product) const override { return in_use.at(product); }
    [[nodiscard]] bool adopt(const Product& product, std::string_view algorithm) override {
        if (refused_.count(std::string(algorithm)) != 0) return false;
        in_use[product] = algorithm;
        return true;
    }
    [[nodiscard]] std::uint64_t unannounced() const override { return 0; }

    std::map<Product, std::string> in_use;
    std::vector<std::int64_t> tuned;
    double limit_s = 0.0;

  private:
    std::string identity_;
    std::set<std::string> refused_;
};

struct OneRank {
    std::string device;
    std::vector<Product> products;
    std::set<std::string> refused;
    // what came of it
    std::vector<std::int64_t> tuned;
    std::map<Product, std::string> in_use;
    TunedProducts result;
};

void run(std::vector<OneRank>& ranks, const std::vector<ProductChoice>& known) {
    run_linked_ranks(static_cast<int>(ranks.size()), RankOrder::Concurrent, [&](RankLink& link) {
        OneRank& one = ranks[static_cast<std::size_t>(link.rank())];
        RememberingPlans plans(one.device, one.refused);
        ManualClock clock;
        const auto device = make_sim_device({});
        const auto stream = device->make_stream("compute", StreamRole::Compute);
        one.result = tune_products(link, plans, one.products,
                                   link.rank() == 0 ? known : std::vector<ProductChoice>{}, *stream, clock);
        one.tuned = plans.tuned;
        one.in_use = plans.in_use;
    });
}

}  // namespace

TEST_CASE("the lowest rank of a kind of device tunes what all of that kind need") {
    std::vector<OneRank> ranks(4);
    ranks[0] = {"A", {sized(1), sized(2)}, {}, {}, {}, {}};
    ranks[1] = {"B", {sized(2), sized(3)}, {}, {}, {}, {}};
    ranks[2] = {"A", {sized(3)}, {}, {}, {}, {}};
    ranks[3] = {"B", {sized(4)}, {}, {}, {}, {}};
    run(ranks, {});
    CHECK(ranks[0].tuned == std::vector<std::int64_t>{1, 2, 3});
    CHECK(ranks[1].tuned == std::vector<std::int64_t>{2, 3, 4});
    CHECK(ranks[2].tuned.empty());
    CHECK(ranks[3].tuned.empty());
    CHECK(ranks[2].in_use.at(sized(3)) == "best-3");
    CHECK(ranks[3].in_use.at(sized(4)) == "best-4");
    for (const OneRank& rank : ranks) {
        CHECK(rank.result.choices == ranks[0].result.choices);
        CHECK(rank.result.known == 0);
    }
    CHECK(ranks[0].result.choices.size() == 6);
    CHECK(ranks[0].result.report.compared == 6);
    CHECK(ranks[0].result.report.best_gain == 0.25);
    CHECK(ranks[0].result.report.seconds == 1.5);  // they tuned at the same time
    CHECK(ranks[0].result.report.discarded.size() == 4);
    CHECK(describe(ranks[3].result) ==
          "6 matrix products tuned in 1.5 s (6 other than the library's first, best gain 25 %)");
}

TEST_CASE("known choices are taken over, those of other devices are not, and refused ones are tuned again") {
    std::vector<OneRank> ranks(2);
    ranks[0] = {"A", {sized(1), sized(2)}, {"alien"}, {}, {}, {}};
    ranks[1] = {"A", {sized(3), sized(4)}, {"alien"}, {}, {}, {}};
    run(ranks, {{"A", to_string(sized(1)), "old"},
                {"A", to_string(sized(2)), "alien"},
                {"B", to_string(sized(3)), "of another"},
                {"A", to_string(sized(4)), "old"}});
    CHECK(ranks[0].tuned == std::vector<std::int64_t>{2, 3});
    CHECK(ranks[0].in_use.at(sized(1)) == "old");
    CHECK(ranks[0].in_use.at(sized(2)) == "best-2");
    CHECK(ranks[1].in_use.at(sized(3)) == "best-3");
    CHECK(ranks[1].in_use.at(sized(4)) == "old");
    CHECK(ranks[1].result.known == 2);
    CHECK_THAT(describe(ranks[1].result),
               Catch::Contains("2 matrix products tuned") && Catch::Contains("2 as chosen before"));
    ranks[0].tuned.clear();
    run(ranks, ranks[0].result.choices);
    CHECK(ranks[0].tuned.empty());
    CHECK(describe(ranks[0].result) == "4 matrix products as chosen before");
}

TEST_CASE("whoever tunes ends before the ranks that wait for it give up") {
    CHECK(tuning_limits(1800.0).seconds == TuningLimits{}.seconds);
    CHECK(tuning_limits(10.0).seconds == 5.0);
    MemoryFileSystem files;
    std::array<double, 2> limits{};
    run_linked_ranks(2, RankOrder::Concurrent, [&](RankLink& link) {
        RememberingPlans plans(link.rank() == 0 ? "A" : "B", {});
        ManualClock clock;
        DescriptorLog log(-1, LogLevel::Error, {});
        const auto device = make_sim_device({});
        const auto stream = device->make_stream("compute", StreamRole::Compute);
        tune_products_of_run(link, plans, {sized(1)}, files, RunLayout("run"), *stream, clock, log,
                             tuning_limits(10.0));
        limits[static_cast<std::size_t>(link.rank())] = plans.limit_s;
    });
    CHECK(limits == std::array<double, 2>{5.0, 5.0});
}

TEST_CASE("a rank that cannot run what was chosen for its kind of device ends the start of all") {
    std::vector<OneRank> ranks(2);
    ranks[0] = {"A", {sized(1)}, {}, {}, {}, {}};
    ranks[1] = {"A", {sized(1)}, {"best-1"}, {}, {}, {}};
    try {
        run(ranks, {});
        FAIL("rank 1 ran by an algorithm that it had refused");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Resource);
        CHECK_THAT(error.what(),
                   Catch::Contains("[rank 1") && Catch::Contains("device.tune_products = false"));
    }
}

TEST_CASE("products as text") {
    std::set<std::string> texts;
    for (const MatmulKind kind :
         {MatmulKind::Forward, MatmulKind::BackwardInput, MatmulKind::BackwardWeight}) {
        for (const bool bias : {false, true}) {
            const Product product{kind, 1, 20000000000, 3, DType::F16, DType::F32, bias};
            texts.insert(to_string(product));
            CHECK(parse_product(to_string(product)) == product);
        }
    }
    CHECK(texts.size() == 6);
    CHECK(to_string(sized(5)) == "forward 5 8 8 bf16 bf16");
    for (const char* wrong :
         {"", "forward", "forward 1 2 3 bf16", "forward 1 2 3 bf16 bf16 bias bias",
          "forward 1 2 3 bf16 bf16 x", "backward 1 2 3 bf16 bf16", "forward 0 2 3 bf16 bf16",
          "forward 1 2 3x bf16 bf16", "forward 1  2 3 bf16 bf16", "forward 1 2 3 bf16 b16",
          "forward 1 2 3 bf16 bf16 "}) {
        INFO(wrong);
        CHECK_FALSE(parse_product(wrong).has_value());
    }
}
