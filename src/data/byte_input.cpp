#include "data/byte_input.h"

#include <fmt/core.h>
#include <zlib.h>
#include <zstd.h>

#include <utility>
#include <vector>

#include "trainctl/base/error.h"

namespace trainctl::data_detail {
namespace {

constexpr std::size_t stored_piece = 256 * 1024;

class PlainInput final : public ByteInput {
  public:
    explicit PlainInput(std::unique_ptr<File> file) : file_(std::move(file)) {}
    std::size_t read(std::span<std::byte> into) override {
        const std::size_t got = file_->read_some_at(offset_, into);
        offset_ += got;
        return got;
    }
    [[nodiscard]] std::uint64_t stored_bytes_read() const override { return offset_; }

  private:
    std::unique_ptr<File> file_;
    std::uint64_t offset_ = 0;
};

// What both decompressors share: a buffer of stored bytes that is refilled when used up.
class StoredBytes {
  public:
    StoredBytes(std::unique_ptr<File> file, std::string path)
        : file_(std::move(file)), path_(std::move(path)), buffer_(stored_piece) {}

    // The unread stored bytes; empty only at the end of the file.
    std::span<std::byte> available() {
        if (at_ == filled_) {
            filled_ = file_->read_some_at(offset_, buffer_);
            offset_ += filled_;
            at_ = 0;
        }
        return std::span(buffer_).subspan(at_, filled_ - at_);
    }
    void consume(std::size_t bytes) { at_ += bytes; }
    [[nodiscard]] std::uint64_t position() const { return offset_ - (filled_ - at_); }
    [[noreturn]] void damaged(const std::string& what) const {
        fail(Exit::BadInput, fmt::format("{}: at byte {}: {}. The file is cut or damaged; fetch it again",
                                         path_, position(), what));
    }

  private:
    std::unique_ptr<File> file_;
    std::string path_;
    std::vector<std::byte> buffer_;
    std::uint64_t offset_ = 0;
    std::size_t at_ = 0;
    std::size_t filled_ = 0;
};

class GzipInput final : public ByteInput {
  public:
    explicit GzipInput(StoredBytes stored) : stored_(std::move(stored)) {
        constexpr int gzip_window = 15 + 16;  // largest window, gzip wrapper only
        if (inflateInit2(&stream_, gzip_window) != Z_OK)
            fail(Exit::Resource,
                 "zlib: no memory for decompression; end other programs, or unpack the file first");
    }
    ~GzipInput() override { inflateEnd(&stream_); }
    GzipInput(const GzipInput&) = delete;
    GzipInput& operator=(const GzipInput&) = delete;

    std::size_t read(std::span<std::byte> into) override {
        for (;;) {
            const std::span<std::byte> in = stored_.available();
            if (in.empty()) {
                if (in_member_) stored_.damaged("the file ends inside a gzip member");
                return 0;
            }
            if (!in_member_) {
                inflateReset(&stream_);
                in_member_ = true;
            }
            stream_.next_in = reinterpret_cast<Bytef*>(in.data());
            stream_.avail_in = static_cast<uInt>(in.size());
            stream_.next_out = reinterpret_cast<Bytef*>(into.data());
            stream_.avail_out = static_cast<uInt>(into.size());
            const int status = inflate(&stream_, Z_NO_FLUSH);
            stored_.consume(in.size() - stream_.avail_in);
            if (status == Z_STREAM_END) {
                in_member_ = false;
            } else if (status != Z_OK && status != Z_BUF_ERROR) {
                stored_.damaged(stream_.msg != nullptr ? stream_.msg : "not gzip data");
            }
            const std::size_t got = into.size() - stream_.avail_out;
            if (got > 0) return got;
        }
    }
    [[nodiscard]] std::uint64_t stored_bytes_read() const override { return stored_.position(); }

  private:
    StoredBytes stored_;
    z_stream stream_{};
    bool in_member_ = false;
};

class ZstdInput final : public ByteInput {
  public:
    explicit ZstdInput(StoredBytes stored) : stored_(std::move(stored)), context_(ZSTD_createDCtx()) {
        if (!context_)
            fail(Exit::Resource,
                 "zstd: no memory for decompression; end other programs, or unpack the file first");
        // --long=31 files are common for corpora; the default limit would refuse them.
        ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, 31);
    }

    std::size_t read(std::span<std::byte> into) override {
        for (;;) {
            const std::span<std::byte> in = stored_.available();
            if (in.empty() && !in_frame_) return 0;
            ZSTD_inBuffer source{in.data(), in.size(), 0};
            ZSTD_outBuffer target{into.data(), into.size(), 0};
            const std::size_t status = ZSTD_decompressStream(context_.get(), &target, &source);
            stored_.consume(source.pos);
            if (ZSTD_isError(status) != 0) stored_.damaged(ZSTD_getErrorName(status));
            in_frame_ = status != 0;
            if (target.pos > 0) return target.pos;
            if (in.empty() && in_frame_) stored_.damaged("the file ends inside a zstd frame");
        }
    }
    [[nodiscard]] std::uint64_t stored_bytes_read() const override { return stored_.position(); }

  private:
    struct Free {
        void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
    };
    StoredBytes stored_;
    std::unique_ptr<ZSTD_DCtx, Free> context_;
    bool in_frame_ = false;
};

}  // namespace

Compression strip_compression(std::string& name) {
    for (const auto& [suffix, compression] :
         {std::pair<std::string_view, Compression>{".gz", Compression::Gzip}, {".zst", Compression::Zstd}}) {
        if (name.size() > suffix.size() &&
            name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0) {
            name.resize(name.size() - suffix.size());
            return compression;
        }
    }
    return Compression::None;
}

std::unique_ptr<ByteInput> open_input(FileSystem& files, const std::string& path) {
    std::string name = path;
    const Compression compression = strip_compression(name);
    auto file = files.open(path, Open::Read);
    switch (compression) {
        case Compression::Gzip:
            return std::make_unique<GzipInput>(StoredBytes(std::move(file), path));
        case Compression::Zstd:
            return std::make_unique<ZstdInput>(StoredBytes(std::move(file), path));
        case Compression::None:
            break;
    }
    return std::make_unique<PlainInput>(std::move(file));
}

}  // namespace trainctl::data_detail
