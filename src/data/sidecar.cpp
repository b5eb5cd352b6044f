#include "trainctl/data/sidecar.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {
constexpr const char* format_word = "trainctl-data";
constexpr int format_version = 1;
}  // namespace

std::string to_json(const Sidecar& sidecar) {
    nlohmann::ordered_json sources = nlohmann::ordered_json::array();
    for (const SidecarSource& source : sidecar.sources) {
        sources.push_back({{"path", source.path}, {"bytes", source.bytes}, {"documents", source.documents}});
    }
    const WrittenTokens& written = sidecar.written;
    const nlohmann::ordered_json json = {
        {"format", format_word},
        {"version", format_version},
        {"tokenizer", sidecar.tokenizer},
        {"vocab_size", sidecar.vocab_size},
        {"end_of_document", sidecar.end_of_document},
        {"token_type", sidecar.token_type},
        {"documents", written.documents},
        {"sequences", written.sequences},
        {"tokens", written.tokens},
        {"text_bytes", sidecar.text_bytes},
        {"empty_documents", sidecar.empty_documents},
        {"bin", {{"bytes", written.bin_bytes}, {"sha256", written.bin_sha256}}},
        {"idx", {{"bytes", written.idx_bytes}, {"sha256", written.idx_sha256}}},
        {"sources", std::move(sources)},
    };
    // Paths are bytes to us; JSON wants UTF-8.
    return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::optional<Sidecar> read_sidecar(FileSystem& files, const std::string& prefix) {
    const std::string path = prefix + ".json";
    const auto status = files.status(path);
    if (!status || status->directory) return std::nullopt;
    const auto json = nlohmann::json::parse(read_text(files, path), nullptr, false);
    if (json.is_discarded()) {
        fail(Exit::BadInput,
             fmt::format("{}: damaged: not JSON. Prepare the data again, or remove the file to use "
                         "the token files without it",
                         path));
    }
    if (!json.is_object() || json.value("format", nlohmann::json()) != format_word) return std::nullopt;
    try {
        const int version = json.at("version").get<int>();
        if (version != format_version) {
            fail(Exit::BadInput,
                 fmt::format("{}: version {} is expected, found {}; use a newer trainctl or prepare the "
                             "data again",
                             path, format_version, version));
        }
        Sidecar sidecar;
        json.at("tokenizer").get_to(sidecar.tokenizer);
        json.at("vocab_size").get_to(sidecar.vocab_size);
        json.at("end_of_document").get_to(sidecar.end_of_document);
        json.at("token_type").get_to(sidecar.token_type);
        json.at("text_bytes").get_to(sidecar.text_bytes);
        json.at("empty_documents").get_to(sidecar.empty_documents);
        json.at("documents").get_to(sidecar.written.documents);
        json.at("sequences").get_to(sidecar.written.sequences);
        json.at("tokens").get_to(sidecar.written.tokens);
        json.at("bin").at("bytes").get_to(sidecar.written.bin_bytes);
        json.at("bin").at("sha256").get_to(sidecar.written.bin_sha256);
        json.at("idx").at("bytes").get_to(sidecar.written.idx_bytes);
        json.at("idx").at("sha256").get_to(sidecar.written.idx_sha256);
        for (const auto& source : json.at("sources")) {
            sidecar.sources.push_back({source.at("path").get<std::string>(),
                                       source.at("bytes").get<std::uint64_t>(),
                                       source.at("documents").get<std::int64_t>()});
        }
        return sidecar;
    } catch (const nlohmann::json::exception& error) {
        fail(Exit::BadInput,
             fmt::format("{}: damaged: {}. Prepare the data again, or remove the file to use the token "
                         "files without it",
                         path, error.what()));
    }
}

std::string megatron_prefix(const std::string& path) {
    for (const std::string_view suffix : {".bin", ".idx"}) {
        if (path.size() > suffix.size() &&
            path.compare(path.size() - suffix.size(), suffix.size(), suffix) == 0) {
            return path.substr(0, path.size() - suffix.size());
        }
    }
    return path;
}

}  // namespace trainctl
