#include "trainctl/data/corpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/data/sidecar.h"

namespace trainctl {
namespace {

class CorpusStream final : public SampleStream {
  public:
    CorpusStream(const Corpus& corpus, Split split) : corpus_(corpus), split_(split) {}

    [[nodiscard]] std::int64_t sequence_length() const override { return corpus_.sequence_length(); }
    [[nodiscard]] std::optional<std::int64_t> samples() const override {
        if (split_ == Split::Train) return std::nullopt;
        return corpus_.windows(Split::Validation);
    }
    void read(std::int64_t sample, std::span<std::int32_t> window) const override {
        corpus_.read(corpus_.locate(split_, sample), window);
    }

  private:
    const Corpus& corpus_;
    Split split_;
};

// The record beside a prepared data set knows its vocabulary: better refused now than at the first large id.
void check_vocabulary(OpenFiles& files, const TokenFile& file, std::int64_t vocab_size) {
    if (file.index() == nullptr) return;
    const std::string prefix = megatron_prefix(file.layout().path);
    const auto sidecar = read_sidecar(files.files(), prefix);
    if (!sidecar || sidecar->vocab_size <= vocab_size) return;
    fail(Exit::BadInput,
         fmt::format("{}.json: prepared with tokenizer {} of {} ids, but model.vocab_size is {}. Set "
                     "model.vocab_size to at least {}",
                     prefix, sidecar->tokenizer, sidecar->vocab_size, vocab_size, sidecar->vocab_size));
}

CorpusSource open_source(OpenFiles& files, const DataSource& source, const DataSpec& data,
                         const CorpusOptions& options) {
    CorpusSource opened;
    opened.path = source.path;
    opened.weight = source.weight;
    opened.first_window.push_back(0);
    for (const std::string& path : expand_pattern(files.files(), source.path)) {
        auto file = open_token_file(files, path, {data.format, data.dtype, options.vocab_size});
        check_vocabulary(files, *file, options.vocab_size);
        const std::int64_t windows = (file->tokens() - 1) / options.sequence_length;
        if (windows < 1) {
            fail(Exit::BadInput,
                 fmt::format("{}: holds {}, but one sample needs {} (training.sequence_length {} + "
                             "1). Join small "
                             "files into one, leave this one out, or train with shorter sequences",
                             file->layout().path, counted(file->tokens(), "token"),
                             options.sequence_length + 1, options.sequence_length));
        }
        opened.first_window.push_back(opened.first_window.back() + windows);
        opened.files.push_back(std::move(file));
    }
    opened.train_end = opened.windows();
    return opened;
}

void hold_out_tail(CorpusSource& source, double fraction) {
    const std::int64_t windows = source.windows();
    const auto wanted = static_cast<std::int64_t>(std::llround(static_cast<double>(windows) * fraction));
    const std::int64_t held = std::max<std::int64_t>(1, wanted);
    if (held >= windows) {
        fail(Exit::BadInput,
             fmt::format("{}: has {}; data.validation_split = {} would hold out {} and leave none "
                         "for training. Use a smaller split, more data, or data.validation files",
                         source.path, counted(windows, "window"), fraction, held));
    }
    source.train_end = windows - held;
    source.validation_begin = source.train_end;
    source.validation_end = windows;
}

std::vector<double> weights_of(const std::vector<DataSource>& sources) {
    std::vector<double> weights;
    weights.reserve(sources.size());
    for (const DataSource& source : sources) weights.push_back(source.weight);
    return weights;
}

// Fixed for ever: evaluations of different runs see the same validation samples in the same batches.
constexpr PermutationKey validation_key{0x76616C6964617465U, 0, 0};

}  // namespace

std::int64_t CorpusSource::tokens() const {
    std::int64_t sum = 0;
    for (const auto& file : files) sum += file->tokens();
    return sum;
}

Corpus::Corpus(FileSystem& files, const DataSpec& data, const CorpusOptions& options)
    : options_(options), open_files_(files), schedule_(weights_of(data.train)) {
    if (options_.sequence_length < 1) {
        fail(Exit::Usage,
             fmt::format("training.sequence_length must be at least 1, found {}", options_.sequence_length));
    }
    if (options_.vocab_size < 1 || options_.vocab_size > (std::int64_t{1} << 31)) {
        fail(Exit::Usage,
             fmt::format("model.vocab_size must be between 1 and 2^31, found {}", options_.vocab_size));
    }
    if (!(data.validation_split >= 0.0 && data.validation_split < 1.0)) {
        fail(Exit::Usage, fmt::format("data.validation_split must be at least 0 and less than 1, found {}",
                                      data.validation_split));
    }
    if (data.validation_split > 0.0 && !data.validation.empty()) {
        fail(Exit::Usage, "data.validation and data.validation_split are both set; keep one of them");
    }
    for (const DataSource& source : data.train)
        train_.push_back(open_source(open_files_, source, data, options_));
    for (const DataSource& source : data.validation) {
        if (source.weight != 1.0) {
            fail(Exit::Usage,
                 fmt::format("data.validation: {} has weight {}, but every validation window is read exactly "
                             "once; leave the weight out",
                             source.path, source.weight));
        }
        CorpusSource opened = open_source(open_files_, source, data, options_);
        opened.train_end = 0;
        opened.validation_end = opened.windows();
        validation_.push_back(std::move(opened));
    }
    check_dtype_is_meant(data);
    if (data.validation_split > 0.0) {
        for (CorpusSource& source : train_) hold_out_tail(source, data.validation_split);
    }
    validation_first_.push_back(0);
    for (const CorpusSource& source : sources(Split::Validation)) {
        validation_first_.push_back(validation_first_.back() + source.validation_end -
                                    source.validation_begin);
    }
    train_stream_ = std::make_unique<CorpusStream>(*this, Split::Train);
    validation_stream_ = std::make_unique<CorpusStream>(*this, Split::Validation);
}

Corpus::~Corpus() = default;

// Beside headerless files a dtype is theirs. Where there are none it is a mistake unless it says what headers
// do.
void Corpus::check_dtype_is_meant(const DataSpec& data) const {
    std::vector<const TokenFile*> opened;
    for (const auto* list : {&train_, &validation_})
        for (const CorpusSource& source : *list)
            for (const auto& file : source.files) opened.push_back(file.get());
    if (std::any_of(opened.begin(), opened.end(),
                    [](const TokenFile* file) { return file->layout().format == TokenFormat::NanoGpt; }))
        return;
    for (const TokenFile* file : opened) check_dtype(*file, {data.format, data.dtype, options_.vocab_size});
}

const std::vector<CorpusSource>& Corpus::sources(Split split) const {
    return split == Split::Train || validation_.empty() ? train_ : validation_;
}

std::int64_t Corpus::windows(Split split) const {
    if (split == Split::Validation) return validation_first_.back();
    std::int64_t sum = 0;
    for (const CorpusSource& source : train_) sum += source.train_end - source.train_begin;
    return sum;
}

SampleOrigin Corpus::locate(Split split, std::int64_t sample) const {
    invariant(sample >= 0, "samples are counted from 0");
    SampleOrigin origin;
    origin.split = split;
    if (split == Split::Train) {
        const SourceSchedule::Place place = schedule_.place(sample);
        const CorpusSource& source = train_[static_cast<std::size_t>(place.source)];
        const std::int64_t windows = source.train_end - source.train_begin;
        origin.source = place.source;
        origin.epoch = place.index / windows;
        const Permutation permutation(windows, {options_.seed, static_cast<std::uint32_t>(place.source),
                                                static_cast<std::uint64_t>(origin.epoch)});
        origin.window = source.train_begin + permutation(place.index % windows);
    } else {
        invariant(sample < windows(Split::Validation), "no such validation sample");
        const std::int64_t place = Permutation(windows(Split::Validation), validation_key)(sample);
        const auto next = std::upper_bound(validation_first_.begin(), validation_first_.end(), place);
        origin.source = static_cast<std::int32_t>(next - validation_first_.begin()) - 1;
        const auto s = static_cast<std::size_t>(origin.source);
        origin.window = sources(split)[s].validation_begin + place - validation_first_[s];
    }
    const std::vector<std::int64_t>& first =
        sources(split)[static_cast<std::size_t>(origin.source)].first_window;
    origin.file = static_cast<std::int32_t>(std::upper_bound(first.begin(), first.end(), origin.window) -
                                            first.begin()) -
                  1;
    origin.first_token =
        (origin.window - first[static_cast<std::size_t>(origin.file)]) * options_.sequence_length;
    return origin;
}

const TokenFile& Corpus::file(const SampleOrigin& origin) const {
    const CorpusSource& source = sources(origin.split)[static_cast<std::size_t>(origin.source)];
    return *source.files[static_cast<std::size_t>(origin.file)];
}

void Corpus::read(const SampleOrigin& origin, std::span<std::int32_t> window) const {
    invariant(static_cast<std::int64_t>(window.size()) == options_.sequence_length + 1,
              "a sample is sequence_length + 1 ids");
    file(origin).read(origin.first_token, window);
}

}  // namespace trainctl
