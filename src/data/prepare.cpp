#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>

#include "data/encode_block.h"
#include "data/ordered_workers.h"
#include "data/text_blocks.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/data/commands.h"
#include "trainctl/data/tokenizer.h"

namespace trainctl {
namespace {

using data_detail::Block;
using data_detail::BlockEncoder;
using data_detail::BlockReader;
using data_detail::EncodedBlock;
using data_detail::InputFile;

std::int64_t thread_count(std::int64_t asked) {
    constexpr std::int64_t most = 32;
    if (asked < 0 || asked > 1024)
        fail(Exit::Usage, fmt::format("--threads must be between 0 and 1024, found {}", asked));
    if (asked > 0) return asked;
    return std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, most);
}

// Feeds encoded blocks to the writer and keeps the counts.
class Sink {
  public:
    Sink(MegatronWriter& writer, Sidecar& sidecar) : writer_(writer), sidecar_(sidecar) {}

    void use(const EncodedBlock& block) {
        std::size_t begin = 0;
        const std::span<const std::int32_t> ids(block.ids);
        for (const std::size_t end : block.document_ends) {
            writer_.append(ids.subspan(begin, end - begin));
            writer_.end_document();
            begin = end;
        }
        writer_.append(ids.subspan(begin));
        const auto ended = static_cast<std::int64_t>(block.document_ends.size());
        sidecar_.sources[block.file].documents += ended;
        sidecar_.text_bytes += block.text_bytes;
        sidecar_.empty_documents += block.empty_documents;
        documents_ += ended;
        tokens_ += static_cast<std::int64_t>(ids.size());
    }
    [[nodiscard]] std::int64_t documents() const { return documents_; }
    [[nodiscard]] std::int64_t tokens() const { return tokens_; }

  private:
    MegatronWriter& writer_;
    Sidecar& sidecar_;
    std::int64_t documents_ = 0;
    std::int64_t tokens_ = 0;
};

CommandResult answer(const PrepareArgs& args, const Sidecar& sidecar, double elapsed_s, OutputFormat format) {
    const WrittenTokens& written = sidecar.written;
    const std::string text = fmt::format(
        "{}.bin  {} {} tokens in {} from {}, {}\n"
        "tokenizer {} (vocabulary {}, end of document {}), {} left out, sha256 {}\n",
        args.output, written.tokens, sidecar.token_type, counted(written.documents, "document"),
        counted(sidecar.sources.size(), "file"), format_bytes(written.bin_bytes), sidecar.tokenizer,
        sidecar.vocab_size, sidecar.end_of_document, counted(sidecar.empty_documents, "empty document"),
        written.bin_sha256);
    const std::string json = fmt::format(R"({{"output":{},"elapsed_s":{},"data":{}}})",
                                         json_quote(args.output), json_number(elapsed_s), to_json(sidecar));
    return {Exit::Ok, in_format(format, text, json), {}};
}

}  // namespace

std::string format_progress(const PrepareProgress& progress) {
    const double share = progress.bytes_total == 0 ? 1.0
                                                   : static_cast<double>(progress.bytes_read) /
                                                         static_cast<double>(progress.bytes_total);
    const double rate =
        progress.elapsed_s > 0.0 ? static_cast<double>(progress.tokens) / progress.elapsed_s : 0.0;
    std::string line = fmt::format("{:5.1f}%  {} of {}  {}  {} tokens  {} tokens/s", 100.0 * share,
                                   format_bytes(progress.bytes_read), format_bytes(progress.bytes_total),
                                   counted(progress.documents, "document"),
                                   format_count(static_cast<double>(progress.tokens)), format_count(rate));
    if (share > 0.0 && share < 1.0) {
        line += "  eta " + format_duration(progress.elapsed_s * (1.0 - share) / share);
    }
    return line;
}

namespace {

// What is read must not be written over.
void refuse_inputs_as_output(const std::vector<InputFile>& inputs, const std::string& output) {
    for (const char* suffix : {".bin", ".idx", ".json"}) {
        const auto written = std::filesystem::path(output + suffix).lexically_normal();
        for (const InputFile& input : inputs) {
            if (std::filesystem::path(input.path).lexically_normal() != written) continue;
            fail(Exit::Usage, fmt::format("{} is an input and would be written over; choose another --output",
                                          input.path));
        }
    }
}

}  // namespace

CommandResult prepare_data(FileSystem& files, Clock& clock, const PrepareArgs& given, OutputFormat format) {
    PrepareArgs args = given;
    args.output = megatron_prefix(given.output);
    if (args.output.empty() || args.output.back() == '/') {
        fail(Exit::Usage,
             fmt::format("--output must be a prefix such as data/corpus, found \"{}\"", args.output));
    }
    const std::int64_t threads = thread_count(args.threads);
    const auto tokenizer = make_tokenizer(args.tokenizer);
    const std::vector<InputFile> inputs = data_detail::find_inputs(files, args.inputs);
    refuse_inputs_as_output(inputs, args.output);

    Sidecar sidecar;
    sidecar.tokenizer = tokenizer->name();
    sidecar.vocab_size = tokenizer->vocab_size();
    sidecar.end_of_document = tokenizer->end_of_document();
    sidecar.token_type = token_type_name(megatron_token_type(tokenizer->vocab_size()));
    PrepareProgress progress;
    for (const InputFile& input : inputs) {
        sidecar.sources.push_back({input.path, input.bytes, 0});
        progress.bytes_total += input.bytes;
    }

    files.make_directories(parent_path(args.output));
    if (args.claim) args.claim(args.output);
    MegatronWriter writer(files, args.output, tokenizer->vocab_size(), args.existing);
    Sink sink(writer, sidecar);
    BlockReader reader(files, inputs, *tokenizer);
    std::atomic<std::uint64_t> bytes_read{0};
    const double begin = clock.monotonic_s();
    double last_report = begin;
    const auto report = [&](double now) {
        progress.bytes_read = bytes_read.load();
        progress.documents = sink.documents();
        progress.tokens = sink.tokens();
        progress.elapsed_s = now - begin;
        last_report = now;
        if (args.progress) args.progress(progress);
    };
    data_detail::OrderedWorkers<Block, EncodedBlock> workers;
    workers.run(
        threads,
        [&](Block& block) {
            const bool more = reader.next(block);
            bytes_read = reader.stored_bytes_read();
            return more;
        },
        [&] {
            const auto encoder = std::make_shared<BlockEncoder>(*tokenizer, args.jsonl_key, inputs);
            return [encoder](Block& block) { return encoder->encode(block); };
        },
        [&](EncodedBlock&& block) { sink.use(block); },
        [&] {
            if (args.stop && args.stop()) {
                fail(Exit::Interrupted,
                     fmt::format(
                         "stopped on request: nothing was written to {}, half or whole; the same command "
                         "starts again from the beginning",
                         args.output));
            }
            const double now = clock.monotonic_s();
            if (now - last_report >= args.progress_interval_s) report(now);
        });
    if (sink.documents() == 0) {
        fail(Exit::BadInput,
             fmt::format(
                 "expected text, found no text at all in {} ({}); nothing was written. Name files with text",
                 counted(inputs.size(), "input file"), counted(sidecar.empty_documents, "empty document")));
    }
    sidecar.written = writer.finish();
    writer.commit(to_json(sidecar));
    report(clock.monotonic_s());
    return answer(args, sidecar, clock.monotonic_s() - begin, format);
}

}  // namespace trainctl
