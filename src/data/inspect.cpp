// `data inspect` of one data set.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>

#include "data/excerpt.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/data/commands.h"
#include "trainctl/data/token_file.h"

namespace trainctl {
namespace {

// Documents by length in powers of two.
struct Histogram {
    std::array<std::int64_t, 64> counts{};  // [k]: lengths of 2^k to 2^(k+1) - 1 tokens
    std::int64_t empty = 0;
    std::int64_t documents = 0;
    std::int64_t longest = 0;

    void add(std::int64_t tokens) {
        ++documents;
        longest = std::max(longest, tokens);
        if (tokens == 0) {
            ++empty;
        } else {
            ++counts[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(tokens)) - 1)];
        }
    }
};

// llm.c writes the end-of-text token in front of each document, everybody else behind it.
enum class Delimiter { InFront, Behind };

void split_at_ends(const TokenFile& file, std::int32_t end_of_document, Delimiter delimiter,
                   Histogram& histogram) {
    constexpr std::int64_t piece = 1024 * 1024;
    std::vector<std::int32_t> ids;
    std::int64_t length = 0;
    const auto close = [&] {
        if (length > 0) histogram.add(length);
        length = 0;
    };
    for (std::int64_t first = 0; first < file.tokens(); first += piece) {
        ids.resize(static_cast<std::size_t>(std::min(piece, file.tokens() - first)));
        file.read(first, ids);
        for (const std::int32_t id : ids) {
            const bool end = id == end_of_document;
            if (end && delimiter == Delimiter::InFront) close();
            ++length;
            if (end && delimiter == Delimiter::Behind) close();
        }
    }
    close();
}

std::string histogram_text(const Histogram& histogram) {
    constexpr std::int64_t bar_width = 40;
    const std::int64_t most = *std::max_element(histogram.counts.begin(), histogram.counts.end());
    std::string text = "document length (tokens)   documents\n";
    for (std::size_t k = 0; k < histogram.counts.size(); ++k) {
        const std::int64_t count = histogram.counts[k];
        if (count == 0) continue;
        const auto low = std::uint64_t{1} << k;
        text +=
            fmt::format("{:>11} .. {:<11} {:>10}  {}\n", low, low * 2 - 1, count,
                        std::string(static_cast<std::size_t>((count * bar_width + most - 1) / most), '#'));
    }
    return text;
}

std::string histogram_json(const Histogram& histogram) {
    std::string list;
    for (std::size_t k = 0; k < histogram.counts.size(); ++k) {
        if (histogram.counts[k] == 0) continue;
        list += fmt::format(R"({}{{"from":{},"to":{},"documents":{}}})", list.empty() ? "" : ",",
                            std::uint64_t{1} << k, (std::uint64_t{1} << k) * 2 - 1, histogram.counts[k]);
    }
    return "[" + list + "]";
}

// Documents evenly over the file, or, where documents are unknown, places evenly over it.
std::vector<DocumentSpan> excerpt_places(const TokenFile& file, std::int64_t wanted) {
    std::vector<DocumentSpan> places;
    const MegatronIndex* index = file.index();
    const std::int64_t from = index != nullptr ? index->documents() : file.tokens();
    const std::int64_t count = std::min(wanted, from);
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t place = from / count * i;
        places.push_back(index != nullptr ? index->document(place)
                                          : DocumentSpan{-1, place, file.tokens() - place});
    }
    return places;
}

}  // namespace

CommandResult inspect_data(FileSystem& files, const InspectArgs& args, OutputFormat format) {
    OpenFiles open_files(files);
    const TokenFileOptions options{args.format, args.dtype, 0, Wording::Options};
    const auto file = open_token_file(open_files, args.path, options);
    check_dtype(*file, options);
    const TokenLayout& layout = file->layout();
    const auto tokenizer = data_detail::tokenizer_for(files, layout.path, args.tokenizer);

    std::optional<Histogram> histogram;
    std::optional<std::int32_t> end_of_document = args.end_of_document;
    if (file->index() != nullptr) {
        histogram.emplace();
        file->index()->scan([&](const DocumentSpan& span) { histogram->add(span.tokens); });
    } else {
        const bool llmc = layout.format == TokenFormat::LlmC;
        if (!end_of_document && llmc) end_of_document = layout.type == TokenType::U16 ? 50256 : 128000;
        if (!end_of_document && tokenizer) end_of_document = tokenizer->end_of_document();
        if (end_of_document) {
            histogram.emplace();
            split_at_ends(*file, *end_of_document, llmc ? Delimiter::InFront : Delimiter::Behind, *histogram);
        }
    }

    std::string shown = fmt::format("{}  {} {}  {}\n{}", layout.path, token_format_name(layout.format),
                                    token_type_name(layout.type), format_bytes(layout.file_bytes),
                                    counted(file->tokens(), "token"));
    std::string json = fmt::format(R"({{"path":{},"format":"{}","token_type":"{}","bytes":{},"tokens":{})",
                                   json_quote(layout.path), token_format_name(layout.format),
                                   token_type_name(layout.type), layout.file_bytes, file->tokens());
    if (histogram && histogram->documents > 0) {
        const double mean = static_cast<double>(file->tokens()) / static_cast<double>(histogram->documents);
        shown += fmt::format(" in {} ({} empty), mean {:.1f}, longest {}\n{}",
                             counted(histogram->documents, "document"), histogram->empty, mean,
                             histogram->longest, histogram_text(*histogram));
        json += fmt::format(R"(,"documents":{},"empty_documents":{},"longest_document":{},"histogram":{})",
                            histogram->documents, histogram->empty, histogram->longest,
                            histogram_json(*histogram));
    } else {
        shown += "; this format keeps no documents (--end-of-document ID splits it)\n";
    }
    std::string list;
    for (const DocumentSpan& place : excerpt_places(*file, args.excerpts)) {
        std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(args.excerpt_tokens, place.tokens)));
        file->read(place.first_token, ids);
        const std::string text = data_detail::excerpt(tokenizer.get(), ids);
        const std::string document = place.document >= 0 ? fmt::format("document {}, ", place.document) : "";
        shown += fmt::format("\n{}token {}, byte {}:\n{}\n", document, place.first_token,
                             file->byte_of(place.first_token), text);
        list += fmt::format(R"({}{{"document":{},"first_token":{},"{}":{}}})", list.empty() ? "" : ",",
                            place.document >= 0 ? std::to_string(place.document) : "null", place.first_token,
                            tokenizer ? "text" : "ids", text);
    }
    json += fmt::format(R"(,"excerpts":[{}]}})", list);
    return {Exit::Ok, in_format(format, shown, json), {}};
}

}  // namespace trainctl
