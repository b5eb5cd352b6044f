// `data verify` of a job: what its ranks read, counted window by window.
#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "data/check_list.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/data/corpus.h"
#include "trainctl/data/loader.h"
#include "trainctl/data/preflight.h"

namespace trainctl {
namespace {

using data_detail::CheckList;

// The windows of one source that were read in the current epoch.
class EpochBook {
  public:
    EpochBook(std::int64_t begin, std::int64_t end)
        : begin_(begin), seen_(static_cast<std::size_t>(end - begin)) {}

    // Empty if fine.
    std::string enter(const SampleOrigin& origin) {
        if (origin.epoch != epoch_) {
            if (origin.epoch != epoch_ + 1 || count_ != windows()) {
                return fmt::format("epoch {} ends after {} of {}", epoch_, count_,
                                   counted(windows(), "window"));
            }
            std::fill(seen_.begin(), seen_.end(), false);
            count_ = 0;
            epoch_ = origin.epoch;
        }
        const std::int64_t place = origin.window - begin_;
        if (place < 0 || place >= windows())
            return fmt::format("window {} is outside the split", origin.window);
        if (seen_[static_cast<std::size_t>(place)]) {
            return fmt::format("window {} is read twice in epoch {}", origin.window, epoch_);
        }
        seen_[static_cast<std::size_t>(place)] = true;
        ++count_;
        return {};
    }
    [[nodiscard]] std::int64_t windows() const { return static_cast<std::int64_t>(seen_.size()); }
    [[nodiscard]] std::int64_t complete_epochs() const { return epoch_ + (count_ == windows() ? 1 : 0); }
    [[nodiscard]] std::int64_t in_epoch() const { return count_ == windows() ? 0 : count_; }

  private:
    std::int64_t begin_;
    std::vector<bool> seen_;
    std::int64_t epoch_ = 0;
    std::int64_t count_ = 0;
};

// How often the ranks read each sample of one global batch. `samples` bounds a finite set.
std::string check_ranks(const BatchLayout& base, std::int64_t step, std::int64_t samples,
                        std::vector<int>& times) {
    std::fill(times.begin(), times.end(), 0);
    const std::int64_t first = step * base.global_batch;
    BatchLayout layout = base;
    for (layout.rank = 0; layout.rank < layout.ranks; ++layout.rank) {
        for (std::int64_t micro = 0; micro < layout.micro_batches(); ++micro) {
            for (std::int64_t row = 0; row < layout.micro_batch; ++row) {
                const std::int64_t sample = layout.first_sample(step, micro) + row;
                if (sample >= samples) continue;
                if (sample < first || sample >= first + base.global_batch) {
                    return fmt::format("rank {} reads sample {} outside batch {}", layout.rank, sample, step);
                }
                ++times[static_cast<std::size_t>(sample - first)];
            }
        }
    }
    for (std::int64_t i = 0; i < base.global_batch && first + i < samples; ++i) {
        const int count = times[static_cast<std::size_t>(i)];
        if (count != 1) return fmt::format("sample {} is read {}", first + i, counted(count, "time"));
    }
    return {};
}

std::vector<EpochBook> books_of(const Corpus& corpus, Split split) {
    std::vector<EpochBook> books;
    for (const CorpusSource& source : corpus.sources(split)) {
        const bool train = split == Split::Train;
        books.emplace_back(train ? source.train_begin : source.validation_begin,
                           train ? source.train_end : source.validation_end);
    }
    return books;
}

void check_training(CheckList& checks, const Corpus& corpus, const JobSpec& job, const BatchLayout& layout,
                    std::int64_t sample_limit) {
    auto books = books_of(corpus, Split::Train);
    const std::int64_t job_samples = job.steps * layout.global_batch;
    const auto covered = [&] {
        return std::all_of(books.begin(), books.end(),
                           [](const EpochBook& book) { return book.complete_epochs() > 0; });
    };
    std::vector<int> times(static_cast<std::size_t>(layout.global_batch));
    std::string fault;
    std::int64_t sample = 0;
    // The whole job, and at least until every source was passed once.
    for (std::int64_t step = 0;
         fault.empty() && sample < sample_limit && (sample < job_samples || !covered()); ++step) {
        fault = check_ranks(layout, step, INT64_MAX, times);
        for (std::int64_t i = 0; fault.empty() && i < layout.global_batch; ++i, ++sample) {
            const SampleOrigin origin = corpus.locate(Split::Train, sample);
            fault = books[static_cast<std::size_t>(origin.source)].enter(origin);
            if (!fault.empty()) {
                const auto& source = corpus.train_sources()[static_cast<std::size_t>(origin.source)];
                fault = fmt::format("{}: {}", source.path, fault);
            }
        }
    }
    checks.expect(fault.empty(), "ranks",
                  fault.empty() ? fmt::format("{} read {}, each exactly once", counted(layout.ranks, "rank"),
                                              counted(sample, "sample"))
                                : fault);
    if (!fault.empty()) return;
    for (std::size_t s = 0; s < books.size(); ++s) {
        const EpochBook& book = books[s];
        const bool passed = book.complete_epochs() > 0;
        checks.add(
            passed ? CheckList::Verdict::Passed : CheckList::Verdict::NotChecked,
            "windows of " + corpus.train_sources()[s].path,
            fmt::format("{} of {}, each window once per epoch, then {} more without "
                        "repeats; {}/1024 of the samples{}",
                        counted(book.complete_epochs(), "complete epoch"), counted(book.windows(), "window"),
                        book.in_epoch(), corpus.schedule().count(static_cast<std::int32_t>(s)),
                        passed ? "" : fmt::format(" (stopped after {})", counted(sample, "sample"))));
    }
}

void check_validation(CheckList& checks, const Corpus& corpus, const BatchLayout& layout) {
    const std::int64_t samples = corpus.windows(Split::Validation);
    if (samples == 0) return;
    auto books = books_of(corpus, Split::Validation);
    std::vector<int> times(static_cast<std::size_t>(layout.global_batch));
    std::string fault;
    for (std::int64_t step = 0; fault.empty() && step * layout.global_batch < samples; ++step) {
        fault = check_ranks(layout, step, samples, times);
    }
    for (std::int64_t sample = 0; fault.empty() && sample < samples; ++sample) {
        const SampleOrigin origin = corpus.locate(Split::Validation, sample);
        fault = books[static_cast<std::size_t>(origin.source)].enter(origin);
    }
    checks.expect(fault.empty(), "validation",
                  fault.empty() ? fmt::format("{}, each read once by {}", counted(samples, "window"),
                                              counted(layout.ranks, "rank"))
                                : fault);
}

}  // namespace

CommandResult verify_job(FileSystem& files, const JobSpec& job, const VerifyJobArgs& args,
                         OutputFormat format) {
    CheckList checks;
    const BatchLayout layout{job.training.global_batch_size, job.training.micro_batch_size, args.ranks, 0};
    std::unique_ptr<Corpus> corpus;
    const bool opened = checks.attempt("data", [&] {
        corpus = std::make_unique<Corpus>(
            files, job.data, CorpusOptions{job.training.sequence_length, job.model.vocab_size, job.seed});
        const DataReport report = check_data(*corpus, job, args.ranks);
        return fmt::format("{} training and {} validation windows of {} tokens", report.train_windows,
                           report.validation_windows, job.training.sequence_length + 1);
    });
    if (!opened) return checks.result(format);
    if (args.contents == Contents::Check) {
        for (const auto* sources : {&corpus->train_sources(), &corpus->validation_sources()}) {
            for (const CorpusSource& source : *sources) {
                for (const auto& file : source.files) {
                    const std::string& path = file->layout().path;
                    checks.append(path + ": ", data_detail::check_token_file(
                                                   files, {path, job.data.format, job.data.dtype,
                                                           job.model.vocab_size, Wording::JobKeys}));
                }
            }
        }
    }
    check_training(checks, *corpus, job, layout, args.sample_limit);
    check_validation(checks, *corpus, layout);
    return checks.result(format);
}

}  // namespace trainctl
