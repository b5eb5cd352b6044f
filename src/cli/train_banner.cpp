#include "cli/train_banner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <sstream>

#include "trainctl/base/text.h"
#include "trainctl/config/model_math.h"

namespace trainctl {

std::vector<std::vector<MemoryRow>> memory_by_stage(RankLink& link, const Rank& rank,
                                                    const Training& training) {
    std::string mine;  // a row per line
    for (const MemoryRow& row : training.plan().memory) mine += fmt::format("{}\t{}\n", row.what, row.bytes);
    const std::vector<std::string> all = link.gather(mine);
    std::vector<std::vector<MemoryRow>> stages;
    for (int stage = 0; !all.empty() && stage < rank.mesh.shape.pipeline; ++stage) {
        std::istringstream lines(all[static_cast<std::size_t>(mesh_rank({0, 0, stage}, rank.mesh.shape))]);
        std::vector<MemoryRow>& rows = stages.emplace_back();
        for (std::string line; std::getline(lines, line);) {
            const std::size_t tab = line.find('\t');
            rows.push_back({line.substr(0, tab), std::stoull(line.substr(tab + 1))});
        }
    }
    return stages;
}

std::string rank_map(const std::vector<std::string>& hosts, MeshShape shape) {
    constexpr std::size_t most_hosts = 8;
    constexpr std::size_t most_ranks = 8;  // per host
    if (hosts.size() == 1) return {};
    std::vector<std::string> names;
    std::vector<std::vector<int>> ranks;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
        const auto host = std::find(names.begin(), names.end(), hosts[rank]);
        const auto index = static_cast<std::size_t>(host - names.begin());
        if (host == names.end()) {
            names.push_back(hosts[rank]);
            ranks.emplace_back();
        }
        ranks[index].push_back(static_cast<int>(rank));
    }
    std::string text = "  ranks      (data, tensor, pipeline)\n";
    for (std::size_t host = 0; host < std::min(names.size(), most_hosts); ++host) {
        text += fmt::format("    {}", names[host]);
        for (std::size_t i = 0; i < std::min(ranks[host].size(), most_ranks); ++i) {
            const MeshPlace place = mesh_place(ranks[host][i], shape);
            text += fmt::format("  {} ({},{},{})", ranks[host][i], place.data, place.tensor, place.pipeline);
        }
        text += ranks[host].size() > most_ranks
                    ? fmt::format("  and {} more, up to {}\n", ranks[host].size() - most_ranks,
                                  ranks[host].back())
                    : "\n";
    }
    if (names.size() > most_hosts) text += fmt::format("    and {} more hosts\n", names.size() - most_hosts);
    return text;
}

std::string start_banner(const JobSpec& job, const Rank& rank, const Training& training,
                         const std::vector<std::string>& hosts,
                         const std::vector<std::vector<MemoryRow>>& memory, const std::string& data,
                         const DevicePeak& peak) {
    const BatchLayout layout = batch_layout(job, rank.mesh);
    const DeviceInfo device = rank.device.info();
    std::string text = fmt::format("run {} in {}\n", job.name, job.run_dir);
    text += fmt::format("  world      {} = data {} x tensor {} x pipeline {}, ZeRO stage {}, {}\n",
                        counted(rank.world.size(), "rank"), rank.mesh.shape.data, rank.mesh.shape.tensor,
                        rank.mesh.shape.pipeline, job.memory.zero_stage,
                        counted(training.plan().buckets, "gradient bucket"));
    text += rank_map(hosts, rank.mesh.shape);
    if (rank.mesh.shape.pipeline > 1)
        text += fmt::format("  pipeline   {} schedule, {} of the model on each of {} stages\n",
                            job.parallel.pipeline_schedule, counted(job.parallel.virtual_stages, "part"),
                            rank.mesh.shape.pipeline);
    text +=
        fmt::format("  model      {} {} parameters, {}, hidden {}, vocabulary {} (padded {}), sequence {}\n",
                    job.model.preset.empty() ? "custom" : job.model.preset, parameter_count(job.model),
                    counted(job.model.layers, "layer"), job.model.hidden_size, job.model.vocab_size,
                    job.model.padded_vocab_size(), job.training.sequence_length);
    text += fmt::format("  batch      {} = micro {} x {} x {} accumulated; {} tokens a step, {}\n",
                        counted(layout.global_batch, "sample"), layout.micro_batch,
                        counted(layout.ranks, "rank"), layout.micro_batches(),
                        format_count(static_cast<double>(layout.global_batch * job.training.sequence_length)),
                        counted(job.steps, "step"));
    text += fmt::format("  precision  {} compute, f32 master, moments and gradients, {} reduction\n",
                        dtype_name(job.precision.compute), dtype_name(job.communication.reduce_dtype));
    const std::string kernels =
        device.isa.empty() ? ""
                           : fmt::format(" {} kernels, {},", device.isa, counted(device.threads, "thread"));
    const std::string of_sheet =
        peak.source == PeakSource::DataSheet
            ? fmt::format("peak {:.1f} GFLOP/s by its data sheet, ", peak.flops_per_s / 1e9)
            : std::string("peak ");
    text += fmt::format("  device     {} ({}),{} {}{:.1f} GFLOP/s measured\n", device.kind, device.name,
                        kernels, of_sheet, peak.measured_flops_per_s / 1e9);
    text += describe_memory(memory);
    if (job.checkpoint.async || rank.device.info().memory == DeviceMemoryKind::Own)
        text += fmt::format("  {:<24} {:>16}  {}, in host memory\n", "checkpoint staging",
                            training.plan().staging_bytes, format_bytes(training.plan().staging_bytes));
    text += data;
    text += rank.world.size() > 1 ? "  to stop: kill -USR1 the mpirun process (saves after the step, exit "
                                    "3); INT and TERM leave ranks under a second"
                                  : "  to stop: INT, TERM or USR1 (saves after the step, exit 3)";
    return text;
}

std::string memory_verdict(RankLink& link, const Training& training, std::uint64_t allocated) {
    const std::uint64_t planned = training.plan().device_bytes();
    const std::vector<std::string> all =
        link.gather(allocated == planned ? std::string() : fmt::format("{} bytes, {}", allocated, planned));
    const auto wrong =
        std::find_if(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
    if (wrong != all.end())
        return fmt::format("after one step the allocator of rank {} holds {} were planned: please report it",
                           wrong - all.begin(), *wrong);
    return fmt::format("after one step the allocator holds {} bytes, as planned", allocated);
}

}  // namespace trainctl
