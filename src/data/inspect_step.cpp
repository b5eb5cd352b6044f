// `data inspect --job --step`: what one step of a job reads.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "data/excerpt.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/data/commands.h"
#include "trainctl/data/corpus.h"

namespace trainctl {
namespace {

struct Documents {
    std::string text;
    std::string json = "null";
};

Documents documents_of(const TokenFile& file, std::int64_t first_token, std::int64_t tokens) {
    if (file.index() == nullptr) return {"documents unknown", "null"};
    const DocumentSpan first = file.index()->document_at(first_token);
    const DocumentSpan last = file.index()->document_at(first_token + tokens - 1);
    const std::int64_t offset = first_token - first.first_token;
    return {fmt::format("documents {} to {}, from token {} of document {}", first.document, last.document,
                        offset, first.document),
            fmt::format(R"({{"first":{},"last":{},"offset":{}}})", first.document, last.document, offset)};
}

}  // namespace

CommandResult inspect_step(FileSystem& files, const JobSpec& job, const InspectStepArgs& args,
                           OutputFormat format) {
    if (args.step < 1)
        fail(Exit::Usage, fmt::format("--step: steps are counted from 1, found {}", args.step));
    const std::int64_t global = job.training.global_batch_size;
    if (global < 1 || args.ranks < 1 || global % args.ranks != 0) {
        fail(Exit::Usage,
             fmt::format(
                 "training.global_batch_size {} must be a multiple of the {} data-parallel ranks; give "
                 "--ranks as the job was started",
                 global, args.ranks));
    }
    const Corpus corpus(files, job.data, {job.training.sequence_length, job.model.vocab_size, job.seed});
    const std::int64_t first = (args.step - 1) * global;

    std::map<std::string, std::int64_t> per_file;
    std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
    std::string rows, list;
    std::vector<std::int32_t> window(static_cast<std::size_t>(job.training.sequence_length + 1));
    for (std::int64_t i = 0; i < global; ++i) {
        const SampleOrigin origin = corpus.locate(Split::Train, first + i);
        const TokenFile& file = corpus.file(origin);
        const std::string& path = file.layout().path;
        corpus.read(origin, window);
        auto& tokenizer = tokenizers.try_emplace(path).first->second;
        if (per_file[path]++ == 0) tokenizer = data_detail::tokenizer_for(files, path, args.tokenizer);

        const std::size_t shown = args.excerpt_tokens > 0
                                      ? std::min(window.size(), static_cast<std::size_t>(args.excerpt_tokens))
                                      : window.size();
        const std::string text = data_detail::excerpt(tokenizer.get(), std::span(window).first(shown));
        const Documents documents =
            documents_of(file, origin.first_token, static_cast<std::int64_t>(window.size()));
        const std::int64_t rank = i / (global / args.ranks);
        rows += fmt::format("\nsample {}  rank {}  {}  epoch {}  window {}  token {}  byte {}\n  {}\n  {}\n",
                            first + i, rank, path, origin.epoch, origin.window, origin.first_token,
                            file.byte_of(origin.first_token), documents.text, text);
        list += fmt::format(
            R"({}{{"sample":{},"rank":{},"source":{},"epoch":{},"window":{},"path":{},"first_token":{},)"
            R"("tokens":{},"byte":{},"documents":{},"{}":{}}})",
            list.empty() ? "" : ",", first + i, rank, origin.source, origin.epoch, origin.window,
            json_quote(path), origin.first_token, window.size(), file.byte_of(origin.first_token),
            documents.json, tokenizer ? "text" : "ids", text);
    }
    std::string shown = fmt::format("step {}: samples {} to {}, {} each\n", args.step, first,
                                    first + global - 1, counted(window.size(), "token"));
    std::string file_list;
    for (const auto& [path, count] : per_file) {
        shown += fmt::format("  {} of {}\n", counted(count, "sample"), path);
        file_list += fmt::format(R"({}{{"path":{},"samples":{}}})", file_list.empty() ? "" : ",",
                                 json_quote(path), count);
    }
    shown += rows;
    const std::string json =
        fmt::format(R"({{"step":{},"first_sample":{},"samples_per_step":{},"files":[{}],"samples":[{}]}})",
                    args.step, first, global, file_list, list);
    return {Exit::Ok, in_format(format, shown, json), {}};
}

}  // namespace trainctl
