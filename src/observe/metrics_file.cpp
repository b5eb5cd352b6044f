#include "trainctl/observe/metrics_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

std::string number(double value) {
    if (std::isnan(value)) return "\"nan\"";
    if (std::isinf(value)) return value > 0.0 ? "\"inf\"" : "\"-inf\"";
    return json_number(value);
}

}  // namespace

std::string to_json(const StepRecord& record) {
    const PhaseSeconds& phases = record.phases;
    const std::string peak = record.peak_flops_per_s > 0.0 ? number(record.peak_flops_per_s) : "null";
    const char* source = record.peak_flops_per_s <= 0.0                ? "null"
                         : record.peak_source == PeakSource::DataSheet ? "\"data_sheet\""
                                                                       : "\"measured\"";
    const std::string mfu = record.mfu() ? number(*record.mfu()) : "null";
    return fmt::format(
        R"({{"type":"step","v":1,"t":{:.3f},"attempt":{},"step":{},"total":{},"loss":{},"grad_norm":{},"clip":{},"lr":{},{})"
        R"("applied":{},"skipped":{},"applied_updates":{},"samples":{},"tokens":{},"step_s":{},"tokens_per_s":{},"model_flops_per_s":{},)"
        R"("palm_flops_per_s":{},"peak_flops_per_s":{},"peak_source":{},"mfu":{},"data_s":{},"forward_s":{},"backward_s":{},)"
        R"("communication_s":{},"optimizer_s":{},"checkpoint_s":{},"evaluation_s":{},"device_bytes":{},"host_bytes":{}{}{}}})",
        record.unix_s, record.attempt, record.step, record.total, number(record.loss),
        number(record.grad_norm), number(record.clip), number(record.lr),
        record.loss_scale ? fmt::format("\"loss_scale\":{},", number(*record.loss_scale)) : "",
        record.applied, record.skipped, record.applied_updates, record.samples, record.tokens,
        number(record.step_s), number(record.tokens_per_s), number(record.model_flops_per_s),
        number(record.palm_flops_per_s), peak, source, mfu, number(phases.data), number(phases.forward),
        number(phases.backward), number(phases.communication), number(phases.optimizer),
        number(phases.checkpoint), number(phases.evaluation), record.device_bytes, record.host_bytes,
        json_members(record.gpu), json_members(record.gpus));
}

std::string to_json(const EvaluationRecord& record) {
    return fmt::format(
        R"({{"type":"evaluation","v":1,"t":{:.3f},"attempt":{},"step":{},"loss":{},"tokens":{},"seconds":{}}})",
        record.unix_s, record.attempt, record.step, number(record.loss), record.tokens,
        number(record.seconds));
}

std::string to_json(const CheckpointRecord& record) {
    const bool saved = record.error.empty();
    const double bytes_per_s =
        saved ? static_cast<double>(record.bytes) / std::max(record.seconds, 1e-9) : 0.0;
    return fmt::format(
        R"({{"type":"checkpoint","v":1,"t":{:.3f},"attempt":{},"step":{},"saved":{},{},"checkpoint_stall_s":{},)"
        R"("write_s":{},"bytes":{},"bytes_per_s":{},"age_s":{},"skipped":{}}})",
        record.unix_s, record.attempt, record.step, saved,
        saved ? fmt::format(R"("directory":{},"state":"{:016x}")", json_quote(record.directory),
                            record.state_hash)
              : fmt::format(R"("error":{})", json_quote(record.error)),
        number(record.stall_s), number(record.seconds), record.bytes, number(bytes_per_s),
        number(record.age_s), record.skipped);
}

std::string to_json(const CopyRecord& record) {
    const bool copied = record.error.empty();
    return fmt::format(
        R"({{"type":"checkpoint_copy","v":1,"t":{:.3f},"attempt":{},"step":{},"tier":{},"directory":{},)"
        R"("copied":{},{}"copy_s":{},"bytes":{},"left_out":{}}})",
        record.unix_s, record.attempt, record.step, json_quote(record.tier), json_quote(record.directory),
        copied, copied ? "" : fmt::format(R"("error":{},)", json_quote(record.error)), number(record.seconds),
        record.bytes, record.left_out);
}

MetricsFile::MetricsFile(FileSystem& files, const std::string& path) : files_(files), path_(path) { open(); }

void MetricsFile::open() {
    file_ = files_.open(path_, Open::Append);
    size_ = file_->size();
    torn_ = false;
    if (size_ == 0) return;
    std::array<std::byte, 1> last{};
    files_.open(path_, Open::Read)->read_at(size_ - 1, last);
    torn_ = last[0] != std::byte{'\n'};
}

Appended MetricsFile::append(const std::string& json_line) {
    const auto found = files_.status(path_);
    const bool gone = file_ != nullptr && (!found || found->size < size_);
    std::string line = json_line + "\n";
    try {
        if (file_ == nullptr || !found || found->size != size_) {
            files_.make_directories(parent_path(path_));
            open();
        }
        if (torn_) line.insert(0, "\n");
        file_->write(std::as_bytes(std::span(std::as_const(line))));
        torn_ = false;
        size_ += line.size();
    } catch (const Error&) {
        file_.reset();
        throw;
    }
    return gone ? Appended::Anew : Appended::AsBefore;
}

std::map<std::int64_t, double> read_losses(FileSystem& files, const std::string& path) {
    struct Seen {
        std::int64_t attempt;
        double loss;
    };
    std::map<std::int64_t, Seen> newest;
    const std::string text = read_text(files, path, std::uint64_t{4} << 30U);
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const auto object =
            nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
        begin = end + 1;
        if (!object.is_object() || object.value("type", "") != "step") continue;
        const auto step = object.find("step");
        const auto attempt = object.find("attempt");
        const auto loss = object.find("loss");
        if (step == object.end() || attempt == object.end() || loss == object.end()) continue;
        if (!step->is_number_integer() || !attempt->is_number_integer()) continue;
        const double value = loss->is_number() ? loss->get<double>() : std::nan("");
        const Seen seen{attempt->get<std::int64_t>(), value};
        const auto [at, inserted] = newest.try_emplace(step->get<std::int64_t>(), seen);
        if (!inserted && at->second.attempt <= seen.attempt) at->second = seen;
    }
    std::map<std::int64_t, double> losses;
    for (const auto& [step, seen] : newest) losses.emplace(step, seen.loss);
    return losses;
}

}  // namespace trainctl
