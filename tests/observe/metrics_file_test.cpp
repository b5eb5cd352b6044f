#include "trainctl/observe/metrics_file.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/temporary_directory.h"
#include "trainctl/base/error.h"

using namespace trainctl;

namespace {

StepRecord record_of(std::int64_t attempt, std::int64_t step, double loss) {
    StepRecord record;
    record.attempt = attempt;
    record.step = step;
    record.total = 100;
    record.loss = loss;
    return record;
}

}  // namespace

TEST_CASE("a step record is one JSON object with every number exact") {
    StepRecord record = record_of(3, 7, 1.0 / 3.0);
    record.grad_norm = 0.1;
    record.lr = 6e-4;
    record.model_flops_per_s = 40e9;
    record.peak_flops_per_s = 100e9;
    const auto object = nlohmann::json::parse(to_json(record));
    CHECK(object["type"] == "step");
    CHECK(object["attempt"] == 3);
    CHECK(object["step"] == 7);
    CHECK(object["loss"].get<double>() == 1.0 / 3.0);
    CHECK(object["grad_norm"].get<double>() == 0.1);
    CHECK(object["lr"].get<double>() == 6e-4);
    CHECK(object["mfu"].get<double>() == Approx(0.4));
    CHECK(object["applied"] == true);
    CHECK_FALSE(object.contains("loss_scale"));
    record.loss_scale = 65536.0;
    CHECK(nlohmann::json::parse(to_json(record))["loss_scale"] == 65536.0);
}

TEST_CASE("a step record holds what is known of GPUs, and nothing else of them") {
    StepRecord record = record_of(1, 1, 2.0);
    CHECK(to_json(record).find("gpu") == std::string::npos);
    record.gpu.power_w = 312.5;
    record.gpu.temperature_c = 61;
    record.gpu.memory_used_bytes = 61ULL << 30U;
    record.gpu.throttle = std::vector<std::string>{"power_cap", "thermal"};
    record.gpu.slowed = true;
    record.gpus.sm_clock_min_mhz = 1410;
    const auto object = nlohmann::json::parse(to_json(record));
    CHECK(object["gpu_power_w"] == 312.5);
    CHECK(object["gpu_temperature_c"] == 61);
    CHECK(object["gpu_memory_used_bytes"] == 61ULL << 30U);
    CHECK(object["gpu_throttle"] == nlohmann::json::array({"power_cap", "thermal"}));
    CHECK(object["gpu_slowed"] == true);
    CHECK(object["gpus_sm_clock_min_mhz"] == 1410);
    CHECK_FALSE(object.contains("gpu_ecc_uncorrected"));
    CHECK_FALSE(object.contains("gpus_temperature_max_c"));
}

TEST_CASE("a non-finite loss is written, never left out") {
    StepRecord record = record_of(1, 1, std::nan(""));
    record.grad_norm = std::numeric_limits<double>::infinity();
    record.applied = false;
    record.skipped = 1;
    const auto object = nlohmann::json::parse(to_json(record));
    CHECK(object["loss"] == "nan");
    CHECK(object["grad_norm"] == "inf");
    CHECK(object["applied"] == false);
    CHECK(object["skipped"] == 1);
}

TEST_CASE("a peak that is not known makes a null, not a zero") {
    StepRecord record = record_of(1, 1, 1.0);
    record.model_flops_per_s = 40e9;
    const auto object = nlohmann::json::parse(to_json(record));
    CHECK(object["peak_flops_per_s"].is_null());
    CHECK(object["peak_source"].is_null());
    CHECK(object["mfu"].is_null());
    CHECK(object["model_flops_per_s"] == 40e9);
}

TEST_CASE("readers keep the last attempt of a step and skip torn lines") {
    test::TemporaryDirectory directory;
    const auto files = make_posix_file_system();
    const std::string path = join_path(directory.path(), "metrics.jsonl");
    {
        MetricsFile metrics(*files, path);
        for (int step = 1; step <= 5; ++step) metrics.append(to_json(record_of(1, step, step)));
        metrics.append("{\"type\":\"step\",\"attempt\":1,\"st");
    }
    {
        MetricsFile metrics(*files, path);  // the next attempt appends
        for (int step = 4; step <= 6; ++step) metrics.append(to_json(record_of(2, step, 10 * step)));
        metrics.append(to_json(EvaluationRecord{}));
        metrics.append(to_json(record_of(1, 5, -1)));  // an old line that comes late does not win
    }
    const auto losses = read_losses(*files, path);
    REQUIRE(losses.size() == 6);
    CHECK(losses.at(3) == 3.0);
    CHECK(losses.at(4) == 40.0);
    CHECK(losses.at(5) == 50.0);
    CHECK(losses.at(6) == 60.0);
}

namespace {

std::vector<std::string> lines_of(const test::MemoryFileSystem& files, const std::string& path) {
    std::istringstream text(files.contents(path).value());
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
}

}  // namespace

TEST_CASE("after a line that a full disk cut off the next one starts a line of its own") {
    const std::string whole = to_json(record_of(1, 1, 1.0));
    for (std::size_t fits = 0; fits <= whole.size() + 1; ++fits) {
        INFO(fits);
        test::MemoryFileSystem files;
        files.make_directories("run");
        MetricsFile metrics(files, "run/metrics.jsonl");
        metrics.append(whole);
        files.set_capacity(whole.size() + 1 + fits);
        for (int step = 2; step <= 4; ++step) {
            try {
                metrics.append(to_json(record_of(1, step, step)));
            } catch (const Error& error) {
                CHECK(error.code() == Exit::Resource);
            }
        }
        files.set_capacity(1U << 20U);
        CHECK(metrics.append(to_json(record_of(1, 5, 5.0))) == Appended::AsBefore);
        CHECK(metrics.append(to_json(record_of(1, 6, 6.0))) == Appended::AsBefore);
        const auto losses = read_losses(files, "run/metrics.jsonl");
        CHECK(losses.at(1) == 1.0);
        CHECK(losses.at(5) == 5.0);
        CHECK(losses.at(6) == 6.0);
        const std::vector<std::string> lines = lines_of(files, "run/metrics.jsonl");
        CHECK(lines[lines.size() - 2] == to_json(record_of(1, 5, 5.0)));
        CHECK(lines.back() == to_json(record_of(1, 6, 6.0)));
    }
}

TEST_CASE(
    "a metrics file that was removed, moved, emptied or cut under a run is gone on with, and that is said") {
    const auto harm = GENERATE(0, 1, 2, 3, 4);
    INFO(harm);
    test::MemoryFileSystem files;
    files.make_directories("run");
    const std::string path = "run/metrics.jsonl";
    MetricsFile metrics(files, path);
    for (int step = 1; step <= 3; ++step)
        CHECK(metrics.append(to_json(record_of(1, step, step))) == Appended::AsBefore);
    if (harm == 0) files.erase(path);
    if (harm == 1) files.erase("run");
    if (harm == 2) files.rename(path, "run/elsewhere");
    if (harm == 3) files.truncate(path, 0);
    if (harm == 4) files.truncate(path, files.contents(path)->size() - 10);
    CHECK(metrics.append(to_json(record_of(1, 4, 4.0))) == Appended::Anew);
    CHECK(metrics.append(to_json(record_of(1, 5, 5.0))) == Appended::AsBefore);
    const auto losses = read_losses(files, path);
    CHECK(losses.at(4) == 4.0);
    CHECK(losses.at(5) == 5.0);
    CHECK(losses.size() == (harm == 4 ? 4 : 2));
}
