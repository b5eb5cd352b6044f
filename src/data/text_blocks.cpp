#include "data/text_blocks.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <array>

#include "trainctl/base/error.h"

namespace trainctl::data_detail {
namespace {

bool ends_with(std::string_view text, std::string_view suffix) {
    return text.size() > suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

TextKind kind_of(const std::string& path) {
    std::string name = path;
    strip_compression(name);
    return ends_with(name, ".jsonl") || ends_with(name, ".ndjson") ? TextKind::JsonLines : TextKind::Document;
}

// Inside a directory only files that look like text are taken; a file named by the user always is.
bool looks_like_text(const std::string& path) {
    std::string name = path;
    strip_compression(name);
    constexpr std::array<std::string_view, 5> suffixes = {".txt", ".text", ".md", ".jsonl", ".ndjson"};
    return std::any_of(suffixes.begin(), suffixes.end(),
                       [&](std::string_view suffix) { return ends_with(name, suffix); });
}

void search(FileSystem& files, const std::string& folder, std::vector<InputFile>& found) {
    for (const std::string& name : files.list(folder)) {
        const std::string path = join_path(folder, name);
        const auto status = files.status(path);
        if (!status) continue;
        if (status->directory) {
            search(files, path, found);
        } else if (looks_like_text(path)) {
            found.push_back({path, kind_of(path), status->size});
        }
    }
}

}  // namespace

std::vector<InputFile> find_inputs(FileSystem& files, const std::vector<std::string>& inputs) {
    if (inputs.empty())
        fail(Exit::Usage, "no input was given; name at least one text or JSONL file or directory");
    std::vector<InputFile> found;
    for (const std::string& input : inputs) {
        const auto status = files.status(input);
        if (!status)
            fail(Exit::BadInput,
                 fmt::format("{}: no such file or directory; check the path of --input", input));
        if (!status->directory) {
            found.push_back({input, kind_of(input), status->size});
            continue;
        }
        const std::size_t before = found.size();
        search(files, input, found);
        if (found.size() == before) {
            fail(Exit::BadInput,
                 fmt::format("{}: holds no .txt, .text, .md, .jsonl or .ndjson file (also as .gz or .zst); "
                             "name files of other kinds one by one",
                             input));
        }
    }
    return found;
}

bool BlockReader::fill(std::size_t wanted) {
    while (carry_.size() < wanted) {
        const std::size_t before = carry_.size();
        carry_.resize(wanted);
        const std::size_t got =
            input_->read(std::as_writable_bytes(std::span(carry_.data() + before, carry_.size() - before)));
        carry_.resize(before + got);
        if (got == 0) return false;
    }
    return true;
}

std::size_t BlockReader::cut(const InputFile& file) const {
    if (file.kind == TextKind::Document) return tokenizer_.safe_cut(carry_);
    const std::size_t newline = carry_.rfind('\n');
    return newline == std::string::npos ? 0 : newline + 1;
}

bool BlockReader::next(Block& block) {
    while (file_ < inputs_.size()) {
        const InputFile& file = inputs_[file_];
        if (!input_) {
            input_ = open_input(files_, file.path);
            carry_.clear();
            line_ = 1;
            document_has_text_ = false;
        }
        bool more = true;
        std::size_t take = 0;
        for (std::size_t wanted = target_bytes; take == 0 && more; wanted *= 2) {
            if (wanted > limit_bytes) {
                fail(
                    Exit::BadInput,
                    file.kind == TextKind::JsonLines
                        ? fmt::format("{}: line {} is longer than {} bytes; is this JSON Lines (one object "
                                      "per line)? If not, name it .txt to make it one document",
                                      file.path, line_, limit_bytes)
                        : fmt::format(
                              "{}: expected text, found {} bytes without a place where tokenizer {} can cut; "
                              "name only text files",
                              file.path, limit_bytes, tokenizer_.name()));
            }
            more = fill(wanted);
            take = more ? cut(file) : carry_.size();
        }
        if (!more) {
            finished_bytes_ += input_->stored_bytes_read();
            input_.reset();
            ++file_;
            if (file.kind == TextKind::JsonLines && take == 0) continue;
        }
        block.number = number_++;
        block.file = static_cast<std::size_t>(&file - inputs_.data());
        block.kind = file.kind;
        block.first_line = line_;
        document_has_text_ = document_has_text_ || take > 0;
        block.ends_document = file.kind == TextKind::Document && !more;
        block.empty_document = block.ends_document && !document_has_text_;
        block.text.clear();
        block.text.reserve(take + simdjson::SIMDJSON_PADDING);
        block.text.assign(carry_, 0, take);
        carry_.erase(0, take);
        if (file.kind == TextKind::JsonLines) line_ += std::count(block.text.begin(), block.text.end(), '\n');
        return true;
    }
    return false;
}

}  // namespace trainctl::data_detail
