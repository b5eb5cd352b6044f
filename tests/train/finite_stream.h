// A finite part of an endless sample stream, for validation.
#pragma once

#include "trainctl/config/job_spec.h"
#include "trainctl/data/sample_stream.h"
#include "trainctl/train/synthetic_language.h"
#include "trainctl/train/synthetic_stream.h"

namespace trainctl::test {

// `count` samples that no training reads. `all` must outlive it.
class FiniteStream final : public SampleStream {
  public:
    FiniteStream(const SampleStream& all, std::int64_t count) : all_(all), count_(count) {}
    [[nodiscard]] std::int64_t sequence_length() const override { return all_.sequence_length(); }
    [[nodiscard]] std::optional<std::int64_t> samples() const override { return count_; }
    void read(std::int64_t sample, std::span<std::int32_t> window) const override {
        all_.read(1'000'000 + sample, window);
    }

  private:
    const SampleStream& all_;
    std::int64_t count_;
};

// `count` samples of the language that train() trains a job on by default.
struct ValidationSet {
    ValidationSet(const JobSpec& job, std::int64_t count)
        : language(job.model.vocab_size, job.seed),
          all(language, job.training.sequence_length),
          samples(all, count) {}
    ValidationSet(const ValidationSet&) = delete;
    ValidationSet& operator=(const ValidationSet&) = delete;

    SyntheticLanguage language;
    SyntheticStream all;
    FiniteStream samples;
};

}  // namespace trainctl::test
