// The only place that names Catch2 (version 2 on Debian 12), so that a later version is one change.
// Assertions are not thread-safe: collect results in a rank thread and assert in the test's own thread.
#pragma once

#include <catch2/catch.hpp>
