// Where checkpoints go.
#include "trainctl/config/tiers.h"

#include "job_text.h"
#include "support/catch.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

bool warns_of_lost_nodes(const LoadedJob& job) {
    return std::any_of(job.problems.begin(), job.problems.end(), [](const Problem& found) {
        return found.what.find("a lost node takes") != std::string::npos;
    });
}

}  // namespace

TEST_CASE("a job's tiers, and which of them makes a checkpoint durable", "[config]") {
    CheckpointSpec spec;
    CHECK(checkpoint_tiers(spec).size() == 1);
    CHECK(checkpoint_tiers(spec)[0].kind == TierKind::Shared);
    spec.backup_to_object_storage = "s3://bucket/run";
    REQUIRE(checkpoint_tiers(spec).size() == 2);
    CHECK(checkpoint_tiers(spec)[1].kind == TierKind::Object);
    CHECK(durable_tier(spec, checkpoint_tiers(spec)) == 0);
    spec.tiers = {"local:/nvme/ck", "shared:/lustre/ck"};
    const auto tiers = checkpoint_tiers(spec);
    REQUIRE(tiers.size() == 3);
    CHECK(tiers[0].path == "/nvme/ck");
    CHECK(tiers[1].path == "/lustre/ck");
    CHECK(tiers[2].path == "s3://bucket/run");
    CHECK(durable_tier(spec, tiers) == 1);
    spec.durable_tier = "s3://bucket/run";
    CHECK(durable_tier(spec, tiers) == 2);
    spec = {};
    spec.tiers = {"local:/nvme/ck"};
    CHECK(durable_tier(spec, checkpoint_tiers(spec)) == 0);
}

TEST_CASE("what is no place for checkpoints is refused", "[config][mistakes]") {
    for (const char* text : {"nvme", "local:nvme", "local:", "s3://", "s3:///x", "shared:", "shared:x", ""}) {
        INFO(text);
        CHECK_FALSE(parse_tier(text));
        CHECK(count_errors(load_set({std::string("checkpoint.tiers=[\"") + text + "\"]"})) == 1);
    }
    const char* const refused[] = {R"(checkpoint.tiers=["shared","local:/a"])",
                                   R"(checkpoint.tiers=["shared","s3://b/c","s3://b/c"])",
                                   R"(checkpoint.durable_tier=s3://b/c)", R"(checkpoint.peer_copies=1)",
                                   R"(checkpoint.backup_to_object_storage=/backup)"};
    for (const char* assignment : refused) {
        INFO(assignment);
        CHECK(count_errors(load_set({assignment})) == 1);
    }
}

TEST_CASE("checkpoints that a lost node takes along are warned of", "[config]") {
    const LoadedJob alone = load_set({R"(checkpoint.tiers=["local:/a"])"});
    CHECK(count_errors(alone) == 0);
    CHECK(warns_of_lost_nodes(alone));
    for (const std::string assignment :
         {R"(checkpoint.tiers=["local:/a","shared"])", "checkpoint.peer_copies=1"}) {
        std::vector<std::string> set{R"(checkpoint.tiers=["local:/a"])"};
        set.push_back(assignment);
        const LoadedJob safe = load_set(set);
        CHECK(count_errors(safe) == 0);
        CHECK_FALSE(warns_of_lost_nodes(safe));
    }
}
