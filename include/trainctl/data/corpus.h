// The data of a job: weighted sources of token files cut into windows of T + 1 ids at stride T, the tail of
// each file dropped. A sample is a pure function of (seed, sample number); nothing is stored that grows with
// the data. Attention crosses documents: windows ignore document borders.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/data/permutation.h"
#include "trainctl/data/sample_stream.h"
#include "trainctl/data/source_schedule.h"
#include "trainctl/data/token_file.h"

namespace trainctl {

enum class Split { Train, Validation };

// Where one sample's ids come from.
struct SampleOrigin {
    Split split = Split::Train;
    std::int32_t source = 0;       // of the split's list of sources
    std::int64_t epoch = 0;        // of this source, from 0
    std::int64_t window = 0;       // number among all windows of the source, its files one after another
    std::int32_t file = 0;         // of the source
    std::int64_t first_token = 0;  // in that file; the sample is tokens [first_token, first_token + T]
};

// One entry of data.train or data.validation.
struct CorpusSource {
    std::string path;  // as in the job file
    double weight = 1.0;
    std::vector<std::unique_ptr<TokenFile>> files;
    std::vector<std::int64_t> first_window;  // of each file, and one past the end: files.size() + 1 entries
    std::int64_t train_begin = 0, train_end = 0;            // windows used for training
    std::int64_t validation_begin = 0, validation_end = 0;  // windows held out by validation_split
    [[nodiscard]] std::int64_t windows() const { return first_window.back(); }
    [[nodiscard]] std::int64_t tokens() const;
};

struct CorpusOptions {
    std::int64_t sequence_length = 0;  // T
    std::int64_t vocab_size = 0;       // logical; ids must be below it
    std::uint64_t seed = 0;
};

// Immutable after construction, thread-safe. Errors as open_token_file; a file without a single window is
// Exit::BadInput with the numbers. `files` must outlive the corpus.
class Corpus {
  public:
    Corpus(FileSystem& files, const DataSpec& data, const CorpusOptions& options);
    Corpus(const Corpus&) = delete;
    Corpus& operator=(const Corpus&) = delete;
    ~Corpus();

    // Sources of training, and of validation if given by files (else empty: they are tails of the training
    // sources).
    [[nodiscard]] const std::vector<CorpusSource>& train_sources() const { return train_; }
    [[nodiscard]] const std::vector<CorpusSource>& validation_sources() const { return validation_; }
    // The list that SampleOrigin::source of this split counts in.
    [[nodiscard]] const std::vector<CorpusSource>& sources(Split split) const;
    [[nodiscard]] const SourceSchedule& schedule() const { return schedule_; }
    [[nodiscard]] std::int64_t sequence_length() const { return options_.sequence_length; }
    [[nodiscard]] std::int64_t vocab_size() const { return options_.vocab_size; }
    // Windows of one pass over every source of the split (validation: the size of the fixed set, may be 0).
    [[nodiscard]] std::int64_t windows(Split split) const;

    // Endless for Train. Validation samples [0, windows(Validation)) are each window once, in an order that
    // depends on nothing but their number, so that the first few are a fair and fixed subset.
    [[nodiscard]] SampleOrigin locate(Split split, std::int64_t sample) const;
    // window.size() == T + 1.
    void read(const SampleOrigin& origin, std::span<std::int32_t> window) const;
    [[nodiscard]] const TokenFile& file(const SampleOrigin& origin) const;

    [[nodiscard]] const SampleStream& train() const { return *train_stream_; }
    [[nodiscard]] const SampleStream& validation() const { return *validation_stream_; }

  private:
    void check_dtype_is_meant(const DataSpec& data) const;

    CorpusOptions options_;
    OpenFiles open_files_;
    std::vector<CorpusSource> train_;
    std::vector<CorpusSource> validation_;
    SourceSchedule schedule_;
    std::vector<std::int64_t>
        validation_first_;  // sample-order offset of each source's held-out windows, and the end
    std::unique_ptr<SampleStream> train_stream_;
    std::unique_ptr<SampleStream> validation_stream_;
};

}  // namespace trainctl
