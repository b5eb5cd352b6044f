// PREFIX.json beside a prepared data set: how it was made and what it must contain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/data/megatron_writer.h"

namespace trainctl {

struct SidecarSource {
    std::string path;
    std::uint64_t bytes = 0;  // as stored, compressed or not
    std::int64_t documents = 0;
};

struct Sidecar {
    std::string tokenizer;
    std::int64_t vocab_size = 0;
    std::int32_t end_of_document = 0;
    std::string token_type;
    std::int64_t text_bytes = 0;       // of all documents, before tokenization
    std::int64_t empty_documents = 0;  // left out
    WrittenTokens written;
    std::vector<SidecarSource> sources;
};

// The same text for the same content: no times, no host names.
std::string to_json(const Sidecar& sidecar);
// nullopt if PREFIX.json does not exist or is some other JSON; a damaged one of ours is Exit::BadInput.
std::optional<Sidecar> read_sidecar(FileSystem& files, const std::string& prefix);
// "a/b.bin", "a/b.idx", "a/b" -> "a/b".
std::string megatron_prefix(const std::string& path);

}  // namespace trainctl
