// Small data sets in memory whose ids say where they lie, so that every window can be checked by itself.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "support/memory_file_system.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/data/corpus.h"
#include "trainctl/data/loader.h"
#include "trainctl/data/megatron_writer.h"

namespace trainctl::test {

template <class T>
std::string raw(const std::vector<T>& values) {
    std::string bytes(values.size() * sizeof(T), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

// ids base, base + 1, ...
template <class T>
std::vector<T> counting(std::int64_t count, std::int64_t base = 0) {
    std::vector<T> ids;
    for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<T>(base + i));
    return ids;
}

// A headerless uint32 file of `count` ids from `base`.
inline void put_counting(MemoryFileSystem& disk, const std::string& path, std::int64_t count,
                         std::int64_t base) {
    disk.put(path, raw(counting<std::uint32_t>(count, base)));
}

inline DataSpec counting_data(const std::vector<DataSource>& train) {
    DataSpec data;
    data.train = train;
    data.dtype = DType::U32;
    return data;
}

// A Megatron data set with these documents.
inline WrittenTokens put_megatron(FileSystem& files, const std::string& prefix, std::int64_t vocab,
                                  const std::vector<std::vector<std::int32_t>>& documents,
                                  std::int64_t sequence_limit = MegatronWriter::longest_sequence) {
    MegatronWriter writer(files, prefix, vocab, Existing::Refuse, sequence_limit);
    for (const auto& document : documents) {
        writer.append(document);
        writer.end_document();
    }
    const WrittenTokens written = writer.finish();
    writer.commit("");
    return written;
}

// tokens and targets of one micro-batch.
struct BatchMemory {
    BatchMemory(std::int64_t rows, std::int64_t length)
        : shape{rows, length},
          token_ids(static_cast<std::size_t>(rows * length)),
          target_ids(token_ids.size()) {}
    TensorView tokens() { return {reinterpret_cast<std::byte*>(token_ids.data()), shape, DType::I32}; }
    TensorView targets() { return {reinterpret_cast<std::byte*>(target_ids.data()), shape, DType::I32}; }

    Shape shape;
    std::vector<std::int32_t> token_ids, target_ids;
};

// The code of the Error that f throws and its text; Ok and "" if it throws nothing.
struct Thrown {
    Exit code = Exit::Ok;
    std::string text;
};
template <class F>
Thrown thrown_by(F&& f) {
    try {
        f();
    } catch (const Error& error) {
        return {error.code(), error.what()};
    }
    return {};
}
inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace trainctl::test
