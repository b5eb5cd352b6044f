#include "trainctl/rundir/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "rundir/manifest_checks.h"
#include "rundir/strict_json.h"
#include "trainctl/base/error.h"
#include "trainctl/rundir/safetensors.h"

namespace trainctl {
namespace {

using nlohmann::json;

constexpr std::size_t max_rank = 4;
constexpr std::size_t max_name_bytes = 512;

std::string hex(std::uint64_t value, int digits) { return fmt::format("{:0{}x}", value, digits); }

// JSON has no infinities: those three are strings.
json scalar_json(double value) {
    if (std::isfinite(value)) return value;
    if (std::isnan(value)) return "nan";
    return value > 0 ? "inf" : "-inf";
}

double parse_scalar(const json& value, const std::string& key, const std::string& where) {
    if (value.is_number()) return value.get<double>();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
    fail(Exit::BadInput, fmt::format("{}: scalar '{}' is not a number", where, key));
}

std::map<std::string, std::int64_t> parse_counts(const JsonObject& parent, const char* key) {
    const json& object = parent.object(key);
    const JsonObject counts(object, fmt::format("{}: {}", parent.where(), key));
    std::map<std::string, std::int64_t> found;
    for (const auto& [name, value] : object.items())
        found[name] = counts.integer(name.c_str(), INT64_MIN, INT64_MAX);
    return found;
}

ManifestFile parse_file(const json& value, std::uint64_t chunk_bytes, const std::string& where) {
    const JsonObject object(value, where + ": a file");
    ManifestFile file{object.text("name"), object.unsigned_integer("bytes"), {}};
    // A name is one path component of ours: a MANIFEST must not make us read elsewhere.
    const bool plain = !file.name.empty() && file.name.size() <= 255 && file.name.front() != '.' &&
                       file.name.find('/') == std::string::npos && file.name.find('\0') == std::string::npos;
    if (!plain) object.refuse("name", "a plain file name");
    for (const json& crc : object.array("crc32c")) {
        const auto number = crc.is_string() ? parse_hex(crc.get_ref<const std::string&>(), 8) : std::nullopt;
        if (!number) object.refuse("crc32c", "an array of 8 hexadecimal digits each");
        file.chunk_crcs.push_back(static_cast<std::uint32_t>(*number));
    }
    const std::uint64_t chunks = file.bytes / chunk_bytes + (file.bytes % chunk_bytes != 0 ? 1 : 0);
    if (chunks != file.chunk_crcs.size()) {
        fail(Exit::BadInput, fmt::format("{}: file {} has {} chunks but {} checksums", where, file.name,
                                         chunks, file.chunk_crcs.size()));
    }
    return file;
}

ManifestSlice parse_slice(const json& value, const std::vector<ManifestFile>& files,
                          const std::string& where) {
    const JsonObject object(value, where);
    ManifestSlice slice;
    slice.file = static_cast<std::uint32_t>(object.integer("file", 0, std::int64_t{UINT32_MAX}));
    if (slice.file >= files.size()) object.refuse("file", fmt::format("an index below {}", files.size()));
    slice.offset = object.unsigned_integer("offset");
    slice.begin = object.integers("begin");
    slice.extent = object.integers("extent");
    const std::vector<std::int64_t> flat = object.integers("flat");
    if (flat.size() != 2) object.refuse("flat", "two numbers");
    slice.flat_begin = flat[0];
    slice.flat_end = flat[1];
    return slice;
}

ManifestTensor parse_tensor(const json& value, const std::vector<ManifestFile>& files,
                            const std::string& where) {
    const JsonObject object(value, where + ": a tensor");
    ManifestTensor tensor{
        object.text("name"), object.text("dtype"), object.integers("shape"), object.hex("hash", 16), {}};
    const std::string here = fmt::format("{}: tensor \"{}\"", where, tensor.name);
    if (tensor.name.empty() || tensor.name.size() > max_name_bytes) object.refuse("name", "1 to 512 bytes");
    const auto bits = safetensors_dtype_bits(tensor.dtype);
    if (!bits || *bits % 8 != 0) object.refuse("dtype", "a dtype of whole bytes");
    if (tensor.shape.size() > max_rank) object.refuse("shape", "at most four extents");
    for (const json& slice : object.array("slices")) tensor.slices.push_back(parse_slice(slice, files, here));
    require_coverage(tensor, where);
    for (const ManifestSlice& slice : tensor.slices) {
        const std::uint64_t file_bytes = files[slice.file].bytes;
        const auto elements = static_cast<std::uint64_t>(slice.flat_end - slice.flat_begin);
        if (slice.offset > file_bytes || elements > (file_bytes - slice.offset) / (*bits / 8)) {
            fail(Exit::BadInput,
                 fmt::format("{} has a slice beyond the end of {}", here, files[slice.file].name));
        }
    }
    return tensor;
}

json file_json(const ManifestFile& file) {
    json crcs = json::array();
    for (const std::uint32_t crc : file.chunk_crcs) crcs.push_back(hex(crc, 8));
    return {{"name", file.name}, {"bytes", file.bytes}, {"crc32c", std::move(crcs)}};
}

json tensor_json(const ManifestTensor& tensor) {
    json slices = json::array();
    for (const ManifestSlice& slice : tensor.slices) {
        slices.push_back({{"file", slice.file},
                          {"offset", slice.offset},
                          {"begin", slice.begin},
                          {"extent", slice.extent},
                          {"flat", json::array({slice.flat_begin, slice.flat_end})}});
    }
    return {{"name", tensor.name},
            {"dtype", tensor.dtype},
            {"shape", tensor.shape},
            {"hash", hex(tensor.hash, 16)},
            {"slices", std::move(slices)}};
}

}  // namespace

std::string_view health_name(Health health) { return health == Health::Good ? "good" : "probation"; }

std::uint64_t Manifest::total_bytes() const {
    std::uint64_t total = 0;
    for (const ManifestFile& file : files) total += file.bytes;
    return total;
}

const ManifestTensor* Manifest::find(std::string_view name) const {
    const auto found = std::lower_bound(
        tensors.begin(), tensors.end(), name,
        [](const ManifestTensor& tensor, std::string_view key) { return tensor.name < key; });
    return found != tensors.end() && found->name == name ? &*found : nullptr;
}

std::string manifest_text(const Manifest& manifest) {
    json scalars = json::object();
    for (const auto& [name, value] : manifest.scalars) scalars[name] = scalar_json(value);
    json files = json::array();
    for (const ManifestFile& file : manifest.files) files.push_back(file_json(file));
    json tensors = json::array();
    for (const ManifestTensor& tensor : manifest.tensors) tensors.push_back(tensor_json(tensor));
    const json document = {{"format", "trainctl-manifest"},
                           {"version", manifest_version},
                           {"run_id", manifest.run_id},
                           {"directory", manifest.directory},
                           {"step", manifest.step},
                           {"attempt", manifest.attempt},
                           {"created", manifest.created},
                           {"counters", manifest.counters},
                           {"scalars", std::move(scalars)},
                           {"layout", manifest.layout},
                           {"spec", manifest.spec},
                           {"data_fingerprint", manifest.data_fingerprint},
                           {"health", health_name(manifest.health)},
                           {"state_hash", hex(manifest.state_hash, 16)},
                           {"chunk_bytes", manifest.chunk_bytes},
                           {"files", std::move(files)},
                           {"tensors", std::move(tensors)}};
    return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
    const json document = parse_strict_json(text, where);
    const JsonObject object(document, where);
    object.require_format("trainctl-manifest", manifest_version);
    Manifest manifest;
    manifest.run_id = object.text("run_id");
    manifest.directory = object.text("directory");
    manifest.step = object.integer("step", 0, INT64_MAX);
    manifest.attempt = static_cast<int>(object.integer("attempt", 1, 1 << 30));
    manifest.created = object.text("created");
    manifest.counters = parse_counts(object, "counters");
    for (const auto& [name, value] : object.object("scalars").items()) {
        manifest.scalars[name] = parse_scalar(value, name, where);
    }
    manifest.layout = parse_counts(object, "layout");
    manifest.spec = object.text("spec");
    manifest.data_fingerprint = object.text("data_fingerprint");
    const std::string health = object.text("health");
    if (health != "good" && health != "probation") object.refuse("health", "\"good\" or \"probation\"");
    manifest.health = health == "good" ? Health::Good : Health::Probation;
    manifest.state_hash = object.hex("state_hash", 16);
    manifest.chunk_bytes =
        static_cast<std::uint64_t>(object.integer("chunk_bytes", 1, std::int64_t{1} << 30));

    std::set<std::string> names;
    for (const json& value : object.array("files")) {
        manifest.files.push_back(parse_file(value, manifest.chunk_bytes, where));
        if (!names.insert(manifest.files.back().name).second) {
            fail(Exit::BadInput,
                 fmt::format("{}: file {} is listed twice", where, manifest.files.back().name));
        }
    }
    for (const json& value : object.array("tensors")) {
        ManifestTensor tensor = parse_tensor(value, manifest.files, where);
        if (!manifest.tensors.empty() && manifest.tensors.back().name >= tensor.name) {
            fail(Exit::BadInput,
                 fmt::format("{}: tensor \"{}\" is listed twice or out of order", where, tensor.name));
        }
        manifest.tensors.push_back(std::move(tensor));
    }
    return manifest;
}

}  // namespace trainctl
