// A sequential reader of a file's bytes, decompressed on the way (.gz by zlib, .zst by libzstd, any number of
// members or frames). Bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trainctl/base/file_system.h"

namespace trainctl::data_detail {

class ByteInput {
  public:
    virtual ~ByteInput() = default;
    // Up to into.size() bytes; 0 only at the end. A cut or damaged compressed file is Exit::BadInput.
    virtual std::size_t read(std::span<std::byte> into) = 0;
    // Bytes taken from the stored file so far, for progress.
    [[nodiscard]] virtual std::uint64_t stored_bytes_read() const = 0;
};

enum class Compression { None, Gzip, Zstd };
// By the end of the name; `name` loses that suffix.
Compression strip_compression(std::string& name);

std::unique_ptr<ByteInput> open_input(FileSystem& files, const std::string& path);

}  // namespace trainctl::data_detail
