#include "data/encode_block.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <utility>

#include "trainctl/base/error.h"

namespace trainctl::data_detail {

struct BlockEncoder::Parser {
    simdjson::dom::parser dom;
};

BlockEncoder::BlockEncoder(const Tokenizer& tokenizer, std::string key, const std::vector<InputFile>& inputs)
    : tokenizer_(tokenizer), key_(std::move(key)), inputs_(inputs), parser_(std::make_unique<Parser>()) {}

BlockEncoder::~BlockEncoder() = default;

EncodedBlock BlockEncoder::encode(const Block& block) {
    EncodedBlock encoded;
    encoded.file = block.file;
    if (block.kind == TextKind::JsonLines) {
        encode_lines(block, encoded);
        return encoded;
    }
    tokenizer_.encode(block.text, encoded.ids);
    encoded.text_bytes = static_cast<std::int64_t>(block.text.size());
    if (block.empty_document) {
        encoded.empty_documents = 1;
    } else if (block.ends_document) {
        encoded.ids.push_back(tokenizer_.end_of_document());
        encoded.document_ends.push_back(encoded.ids.size());
    }
    return encoded;
}

void BlockEncoder::encode_lines(const Block& block, EncodedBlock& encoded) {
    std::int64_t line = block.first_line;
    const auto bad = [&](const std::string& what) {
        fail(Exit::BadInput, fmt::format("{}: line {}: {}", inputs_[block.file].path, line, what));
    };
    std::string_view text = block.text;
    // The BOM that some editors put in front is no JSON.
    if (line == 1 && text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
    for (; !text.empty(); ++line) {
        const std::size_t newline = text.find('\n');
        const std::string_view row = text.substr(0, newline);
        text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
        if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;

        // Reads up to SIMDJSON_PADDING bytes behind the row: the next rows, then the block's spare capacity.
        simdjson::dom::element element;
        const auto parse_error = parser_->dom.parse(row.data(), row.size(), false).get(element);
        if (parse_error != simdjson::SUCCESS)
            bad(fmt::format("not valid JSON: {}. Every line must be one JSON object; mend or remove the line",
                            simdjson::error_message(parse_error)));
        simdjson::dom::object object;
        if (element.get(object) != simdjson::SUCCESS)
            bad("a JSON object is expected on every line; mend or remove the line");
        std::string_view document;
        const auto key_error = object.at_key(key_).get(document);
        if (key_error == simdjson::NO_SUCH_FIELD) {
            bad(fmt::format("has no key \"{}\"; name the key of the text (--jsonl-key)", key_));
        } else if (key_error != simdjson::SUCCESS) {
            bad(fmt::format(
                "the value of \"{}\" is not a string; name the key of the text (--jsonl-key), or mend or "
                "remove the line",
                key_));
        }
        if (document.empty()) {
            ++encoded.empty_documents;
            continue;
        }
        tokenizer_.encode(document, encoded.ids);
        encoded.text_bytes += static_cast<std::int64_t>(document.size());
        encoded.ids.push_back(tokenizer_.end_of_document());
        encoded.document_ends.push_back(encoded.ids.size());
    }
}

}  // namespace trainctl::data_detail
