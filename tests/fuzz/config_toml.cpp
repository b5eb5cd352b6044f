// Any bytes as a job file, and as the right side of --set: the loader must answer with problems or with a job
// that writes and reads back to itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trainctl/config/load.h"
#include "trainctl/config/write.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    const trainctl::LoadedJob job = trainctl::load_job_text(text, "job.toml");
    (void)trainctl::format_problems(job.problems);
    if (job.ok()) {
        const trainctl::LoadedJob again =
            trainctl::load_job_text(trainctl::to_toml(job.spec), "resolved.toml");
        if (!again.ok() || !(again.spec == job.spec)) std::abort();
    }
    (void)trainctl::load_job_text("", "job.toml", {.set = {std::string{text}}, .world_size = {}});
    return 0;
}
