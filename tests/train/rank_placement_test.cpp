#include "trainctl/train/rank_placement.h"

#include "support/catch.h"

using namespace trainctl;

TEST_CASE("a tensor-parallel group on two hosts is refused, naming ranks and hosts") {
    const std::vector<std::string> hosts{"a", "a", "a", "b", "b", "b"};
    CHECK_NOTHROW(require_tensor_groups_on_one_host(hosts, {2, 3, 1}));
    CHECK_NOTHROW(require_tensor_groups_on_one_host(hosts, {6, 1, 1}));
    CHECK_NOTHROW(require_tensor_groups_on_one_host(hosts, {1, 1, 6}));
    try {
        require_tensor_groups_on_one_host(hosts, {3, 2, 1});
        FAIL("ranks 2 and 3 are on different hosts");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Usage);
        CHECK_THAT(error.what(), Catch::Contains("ranks 2 to 3") &&
                                     Catch::Contains("rank 2 on a, rank 3 on b") &&
                                     Catch::Contains("parallel.tensor_across_hosts"));
    }
    // Round-robin placement.
    CHECK_THROWS_AS(require_tensor_groups_on_one_host({"a", "b", "a", "b"}, {2, 2, 1}), Error);
}
