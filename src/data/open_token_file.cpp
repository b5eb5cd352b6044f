// Finding out what a token file is, and refusing what it cannot be.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "data/little_endian.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/data/sidecar.h"
#include "trainctl/data/token_file.h"

namespace trainctl {
namespace {

using data_detail::load;

constexpr std::uint64_t llmc_header_bytes = 1024;
constexpr std::int32_t llmc_gpt2_magic = 20240520;   // version 1, uint16
constexpr std::int32_t llmc_llama_magic = 20240801;  // version 7, uint32

bool is_file(FileSystem& files, const std::string& path) {
    const auto status = files.status(path);
    return status && !status->directory;
}

std::int32_t first_word(OpenFiles& files, const std::string& path, std::uint64_t size) {
    std::array<std::byte, 4> bytes{};
    if (size < bytes.size()) return 0;
    files.read_at(path, 0, bytes);
    return load<std::int32_t>(bytes, 0);
}

// `data.dtype = "uint16"` or `--dtype uint16`, as the user would write it.
std::string setting(const TokenFileOptions& options, std::string_view name, std::string_view value) {
    return options.wording == Wording::JobKeys ? fmt::format("data.{} = \"{}\"", name, value)
                                               : fmt::format("--{} {}", name, value);
}

std::string name_of(const TokenFileOptions& options, std::string_view name) {
    return (options.wording == Wording::JobKeys ? "data." : "--") + std::string(name);
}

// Nothing is called `path`: says what was looked for in the format that was asked for, and what is there
// instead.
[[noreturn]] void fail_missing(FileSystem& files, const std::string& path, const TokenFileOptions& options) {
    const std::string prefix = megatron_prefix(path);
    const bool bin = is_file(files, prefix + ".bin");
    const bool idx = is_file(files, prefix + ".idx");
    if (options.format == TokenFormat::NanoGpt || options.format == TokenFormat::LlmC) {
        std::string next = "check the path";
        if (bin && idx) {
            next = fmt::format("{} and .idx are a Megatron data set: use {}", prefix + ".bin",
                               setting(options, "format", "megatron"));
        } else if (bin) {
            next = fmt::format("give the whole name, {}.bin", prefix);
        }
        fail(Exit::BadInput, fmt::format("{}: no such file ({} files are one file, without an index); {}",
                                         path, token_format_name(options.format), next));
    }
    if (bin) {
        fail(Exit::BadInput,
             fmt::format(
                 "{0}.idx: no such file, but {0}.bin is there. If it is half of a Megatron data set, restore "
                 "the index or prepare the data again; if it is a headerless (nanogpt) or llm.c file, give "
                 "its whole name, {0}.bin",
                 prefix));
    }
    fail(Exit::BadInput,
         fmt::format("{}: no such file, and no {}.idx beside it either. Give a token file or the prefix "
                     "of a Megatron data set (trainctl data prepare makes one from text)",
                     path, prefix));
}

std::unique_ptr<TokenFile> open_megatron(OpenFiles& files, const std::string& path, std::int64_t vocab_size) {
    const std::string prefix = megatron_prefix(path);
    TokenLayout layout;
    layout.path = prefix + ".bin";
    layout.index_path = prefix + ".idx";
    layout.format = TokenFormat::Megatron;
    for (const std::string& needed : {layout.path, layout.index_path}) {
        if (!is_file(files.files(), needed)) {
            fail(Exit::BadInput,
                 fmt::format(
                     "{0}: no such file. A Megatron data set is a pair, here {1}.bin and {1}.idx; check the "
                     "path, or restore the file or prepare the data again",
                     needed, prefix));
        }
    }
    layout.file_bytes = files.files().status(layout.path)->size;
    auto index = std::make_unique<MegatronIndex>(files, layout.index_path, layout.file_bytes);
    layout.type = index->type();
    layout.tokens = index->tokens();
    return std::make_unique<TokenFile>(files, std::move(layout), std::move(index), vocab_size);
}

std::unique_ptr<TokenFile> open_llmc(OpenFiles& files, const std::string& path, std::uint64_t size,
                                     std::int64_t vocab_size) {
    if (size < llmc_header_bytes) {
        fail(Exit::BadInput, fmt::format("{}: an llm.c token file starts with a header of {} bytes, this "
                                         "file has {}; it is cut (fetch or "
                                         "write it again), or has another format (leave the format out)",
                                         path, llmc_header_bytes, size));
    }
    std::array<std::byte, 12> header{};
    files.read_at(path, 0, header);
    const auto magic = load<std::int32_t>(header, 0);
    const auto version = load<std::int32_t>(header, 4);
    const auto tokens = load<std::int32_t>(header, 8);
    const bool gpt2 = magic == llmc_gpt2_magic && version == 1;
    const bool llama = magic == llmc_llama_magic && version == 7;
    if (!gpt2 && !llama) {
        fail(Exit::BadInput,
             fmt::format("{}: magic {} version {} is no llm.c token file (expected {} version 1 or {} "
                         "version 7); leave the format out to have it found out",
                         path, magic, version, llmc_gpt2_magic, llmc_llama_magic));
    }
    TokenLayout layout;
    layout.path = path;
    layout.format = TokenFormat::LlmC;
    layout.type = gpt2 ? TokenType::U16 : TokenType::U32;
    layout.first_byte = llmc_header_bytes;
    layout.file_bytes = size;
    layout.tokens = tokens;
    const std::uint64_t item = token_bytes(layout.type);
    if (tokens < 0 || size != llmc_header_bytes + static_cast<std::uint64_t>(tokens) * item) {
        fail(Exit::BadInput,
             fmt::format("{}: its header says {} of {} bytes, so {} bytes, but the file has {}: it "
                         "is cut or damaged; fetch or write it again",
                         path, counted(tokens, "token"), item,
                         static_cast<std::int64_t>(llmc_header_bytes) +
                             std::int64_t{tokens} * static_cast<std::int64_t>(item),
                         size));
    }
    return std::make_unique<TokenFile>(files, std::move(layout), nullptr, vocab_size);
}

// Headerless files carry no sign of their type, so a wrong one is guessed from ids at a few places.
void check_declared_type(OpenFiles& files, const TokenLayout& layout, const TokenFileOptions& options) {
    const std::int64_t vocab_size = options.vocab_size;
    constexpr std::int64_t sample = 4096;
    const std::int64_t count = std::min(sample, layout.tokens);
    std::int64_t odd = 0, odd_zero = 0, even = 0, even_zero = 0;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    const TokenFile unchecked(files, layout, nullptr, 0);
    const std::int64_t last = layout.tokens - count;
    for (std::int64_t start : {std::int64_t{0}, last / 2, last}) {
        if (layout.type == TokenType::U16)
            start -= start % 2;  // so that halves of a uint32 keep their places
        if (vocab_size > 0) {
            try {
                TokenFile(files, layout, nullptr, vocab_size).read(start, ids);
            } catch (const Error& error) {
                fail(error.code(), fmt::format("{}. Check {}: {} is declared", error.what(),
                                               name_of(options, "dtype"), token_type_name(layout.type)));
            }
        } else if (layout.type == TokenType::U16) {
            unchecked.read(start, ids);
        }
        for (std::size_t i = 0; i < ids.size(); ++i) {
            (i % 2 == 0 ? even : odd) += 1;
            (i % 2 == 0 ? even_zero : odd_zero) += ids[i] == 0 ? 1 : 0;
        }
    }
    if (layout.type == TokenType::U16 && odd >= 8 && odd_zero == odd && even_zero < even) {
        fail(Exit::BadInput,
             fmt::format("{}: declared uint16, but every second id of {} looked at is 0 and the others "
                         "are not: these are uint32 ids. Set {}",
                         layout.path, odd + even, setting(options, "dtype", "uint32")));
    }
}

std::unique_ptr<TokenFile> open_headerless(OpenFiles& files, const std::string& path, std::uint64_t size,
                                           const TokenFileOptions& options) {
    const std::int32_t word = first_word(files, path, size);
    if (word == llmc_gpt2_magic || word == llmc_llama_magic) {
        fail(Exit::BadInput,
             fmt::format("{}: declared headerless (nanogpt), but it starts with the magic number {} of an "
                         "llm.c file. Set {}, or leave the format out",
                         path, word, setting(options, "format", "llmc")));
    }
    if (!options.dtype) {
        const std::string prefix = megatron_prefix(path);
        if (options.format == TokenFormat::Auto && read_sidecar(files.files(), prefix)) {
            fail(Exit::BadInput, fmt::format("{0}.idx: no such file, but {0}.bin and {0}.json of a prepared "
                                             "data set are there. Restore "
                                             "the index or prepare the data again",
                                             prefix));
        }
        fail(Exit::Usage,
             fmt::format(
                 "{}: a file without header does not say how wide its ids are. Set {} (nanoGPT's own) or {}; "
                 "if it is half of a Megatron data set, {}.idx is missing",
                 path, setting(options, "dtype", "uint16"), setting(options, "dtype", "uint32"), prefix));
    }
    if (*options.dtype != DType::U16 && *options.dtype != DType::U32) {
        fail(Exit::Usage, fmt::format("{}: {} of a headerless file is uint16 or uint32, not {}", path,
                                      name_of(options, "dtype"), dtype_name(*options.dtype)));
    }
    TokenLayout layout;
    layout.path = path;
    layout.format = TokenFormat::NanoGpt;
    layout.type = *options.dtype == DType::U16 ? TokenType::U16 : TokenType::U32;
    layout.file_bytes = size;
    const std::uint64_t item = token_bytes(layout.type);
    if (size % item != 0) {
        fail(Exit::BadInput,
             fmt::format("{}: {} is no whole number of {} ids ({} bytes each): the file is cut, or "
                         "{} is wrong",
                         path, counted(size, "byte"), token_type_name(layout.type), item,
                         name_of(options, "dtype")));
    }
    layout.tokens = static_cast<std::int64_t>(size / item);
    check_declared_type(files, layout, options);
    return std::make_unique<TokenFile>(files, std::move(layout), nullptr, options.vocab_size);
}

std::unique_ptr<TokenFile> open_by_format(OpenFiles& files, const std::string& path,
                                          const TokenFileOptions& options) {
    TokenFormat format = options.format;
    if (format == TokenFormat::Auto && is_file(files.files(), megatron_prefix(path) + ".idx")) {
        format = TokenFormat::Megatron;
    }
    if (format == TokenFormat::Megatron) return open_megatron(files, path, options.vocab_size);

    const auto status = files.files().status(path);
    if (!status) fail_missing(files.files(), path, options);
    if (status->directory) {
        fail(Exit::BadInput,
             fmt::format("{}: is a directory; name its files, for example {}/*.bin", path, path));
    }
    if (format == TokenFormat::Auto) {
        const std::int32_t word = first_word(files, path, status->size);
        const bool llmc = word == llmc_gpt2_magic || word == llmc_llama_magic;
        format = llmc ? TokenFormat::LlmC : TokenFormat::NanoGpt;
    }
    if (format == TokenFormat::LlmC) return open_llmc(files, path, status->size, options.vocab_size);
    return open_headerless(files, path, status->size, options);
}

}  // namespace

std::unique_ptr<TokenFile> open_token_file(OpenFiles& files, const std::string& path,
                                           const TokenFileOptions& options) {
    auto file = open_by_format(files, path, options);
    const TokenLayout& layout = file->layout();
    if (layout.tokens == 0)
        fail(Exit::BadInput,
             fmt::format("{}: holds no tokens; name another file or prepare the data again", layout.path));
    // Beside an index nothing of the .bin has been read yet: that it cannot be read is said now, not at the
    // first batch.
    std::array<std::byte, 1> first{};
    files.read_at(layout.path, 0, first);
    if (options.vocab_size - 1 > largest_id(layout.type)) {
        // Ids of a larger vocabulary were wrapped when the file was written: nothing can be recovered from
        // it.
        fail(Exit::BadInput,
             fmt::format(
                 "{}: {} ids end at {}, but the vocabulary has {} (model.vocab_size): larger ids would have "
                 "wrapped around. Prepare the data again with a wider type",
                 layout.path, token_type_name(layout.type), largest_id(layout.type), options.vocab_size));
    }
    return file;
}

void check_dtype(const TokenFile& file, const TokenFileOptions& options) {
    const TokenLayout& layout = file.layout();
    if (!options.dtype || layout.format == TokenFormat::NanoGpt ||
        dtype_size(*options.dtype) == token_bytes(layout.type))
        return;
    const std::string name = name_of(options, "dtype");
    fail(
        Exit::Usage,
        fmt::format("{}: its {} says {} ids, {} says {}; leave {} out (it is for headerless files)",
                    layout.path, layout.index_path.empty() ? "header" : "index", token_type_name(layout.type),
                    name, *options.dtype == DType::U16 ? "uint16" : "uint32", name));
}

bool is_pattern(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return path.find('*', slash == std::string::npos ? 0 : slash) != std::string::npos;
}

std::vector<std::string> expand_pattern(FileSystem& files, const std::string& pattern) {
    if (!is_pattern(pattern)) return {pattern};
    const std::size_t slash = pattern.rfind('/');
    const std::string last = slash == std::string::npos ? pattern : pattern.substr(slash + 1);
    const auto matches = [](std::string_view glob, std::string_view name) {
        // Greedy with one point of return: enough for '*' as the only wildcard.
        std::size_t g = 0, n = 0, star = std::string_view::npos, mark = 0;
        while (n < name.size()) {
            if (g < glob.size() && glob[g] == '*') {
                star = g++;
                mark = n;
            } else if (g < glob.size() && glob[g] == name[n]) {
                ++g;
                ++n;
            } else if (star != std::string_view::npos) {
                g = star + 1;
                n = ++mark;
            } else {
                return false;
            }
        }
        while (g < glob.size() && glob[g] == '*') ++g;
        return g == glob.size();
    };
    const std::string folder = parent_path(pattern);
    if (!files.status(folder)) {
        fail(Exit::BadInput, fmt::format("{}: no file matches, there is no directory {}", pattern, folder));
    }
    std::vector<std::string> found;
    for (const std::string& name : files.list(folder)) {
        if (!matches(last, name)) continue;
        std::string path = slash == std::string::npos ? name : join_path(folder, name);
        const auto without = [&](std::string_view suffix) -> std::string {
            const bool ends = path.size() > suffix.size() &&
                              path.compare(path.size() - suffix.size(), suffix.size(), suffix) == 0;
            return ends ? path.substr(0, path.size() - suffix.size()) : std::string();
        };
        const std::string prefix = without(".idx") + without(".json");  // at most one of the two
        const bool beside_bin = !prefix.empty() && is_file(files, prefix + ".bin");
        if (!beside_bin && is_file(files, path)) found.push_back(std::move(path));
    }
    if (found.empty()) {
        fail(Exit::BadInput,
             fmt::format("{}: no file matches; {} holds none of that name. `*` stands for any "
                         "characters of a file name, and only there",
                         pattern, folder));
    }
    return found;
}

}  // namespace trainctl
