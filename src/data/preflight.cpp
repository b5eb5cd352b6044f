#include "trainctl/data/preflight.h"

#include <fmt/core.h>

#include "trainctl/base/text.h"
#include "trainctl/data/loader.h"

namespace trainctl {
namespace {

SourceReport report_of(const CorpusSource& source) {
    SourceReport report;
    report.path = source.path;
    report.files = static_cast<std::int64_t>(source.files.size());
    report.tokens = source.tokens();
    report.train_windows = source.train_end - source.train_begin;
    report.validation_windows = source.validation_end - source.validation_begin;
    return report;
}

}  // namespace

DataReport check_data(const Corpus& corpus, const JobSpec& job, std::int64_t ranks) {
    const std::int64_t global = job.training.global_batch_size;
    DataReport report;
    report.train_windows = corpus.windows(Split::Train);
    report.validation_windows = corpus.windows(Split::Validation);
    report.samples = job.steps * global;

    if (ranks > global) {
        fail(Exit::Usage,
             fmt::format("more ranks than samples: {}, but training.global_batch_size is "
                         "{}, so {} would have nothing to do. Use at most {} or a "
                         "larger global batch",
                         counted(ranks, "data-parallel rank"), global, counted(ranks - global, "rank"),
                         counted(global, "data-parallel rank")));
    }
    check_layout({global, job.training.micro_batch_size, ranks, 0});
    if (ranks > report.train_windows) {
        fail(Exit::Usage, fmt::format("more ranks than samples: {}, but the training data has {} "
                                      "of {} tokens. Use more data, shorter sequences or fewer ranks",
                                      counted(ranks, "data-parallel rank"),
                                      counted(report.train_windows, "window"), corpus.sequence_length() + 1));
    }
    if (job.training.eval_interval > 0 && report.validation_windows == 0) {
        fail(Exit::Usage,
             fmt::format(
                 "training.eval_interval is {}, but there is no validation data. Set data.validation or "
                 "data.validation_split, or eval_interval = 0",
                 job.training.eval_interval));
    }
    const auto& sources = corpus.train_sources();
    for (std::size_t s = 0; s < sources.size(); ++s) {
        SourceReport source = report_of(sources[s]);
        source.per_1024 = corpus.schedule().count(static_cast<std::int32_t>(s));
        source.epochs = static_cast<double>(report.samples) * static_cast<double>(source.per_1024) /
                        static_cast<double>(SourceSchedule::slots) /
                        static_cast<double>(source.train_windows);
        if (source.epochs > 4.0) {
            report.warnings.push_back(
                fmt::format("{} is read {:.1f} times in {}; beyond about 4 passes repeated "
                            "data adds little",
                            source.path, source.epochs, counted(job.steps, "step")));
        }
        report.train.push_back(std::move(source));
    }
    if (report.train_windows < global) {
        report.warnings.push_back(
            fmt::format("one global batch of {} is larger than the training data "
                        "({}): samples repeat within a batch",
                        counted(global, "sample"), counted(report.train_windows, "window")));
    }
    for (const CorpusSource& source : corpus.validation_sources())
        report.validation.push_back(report_of(source));
    return report;
}

std::string describe(const DataReport& report) {
    std::string text;
    for (const SourceReport& source : report.train) {
        text += fmt::format("data  train       {}  {}  {} tokens  {}  {}/1024 of samples  {:.3g} epochs\n",
                            source.path, counted(source.files, "file"),
                            format_count(static_cast<double>(source.tokens)),
                            counted(source.train_windows, "window"), source.per_1024, source.epochs);
        if (source.validation_windows > 0) {
            text += fmt::format("data  validation  {}  last {}\n", source.path,
                                counted(source.validation_windows, "window"));
        }
    }
    for (const SourceReport& source : report.validation) {
        text += fmt::format("data  validation  {}  {}  {} tokens  {}\n", source.path,
                            counted(source.files, "file"), format_count(static_cast<double>(source.tokens)),
                            counted(source.validation_windows, "window"));
    }
    for (const std::string& warning : report.warnings) text += "data  warning: " + warning + "\n";
    return text;
}

}  // namespace trainctl
