#include "checkpoint/save_messages.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "checkpoint/dtype_names.h"
#include "trainctl/base/error.h"

namespace trainctl {
namespace {

using nlohmann::json;

// Messages come from our own process: no duplicate keys, no hostile numbers. Broken UTF-8 in paths is
// replaced.
std::string message_text(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::vector<std::int64_t> extents_of(const Shape& shape) {
    std::vector<std::int64_t> extents;
    extents.reserve(static_cast<std::size_t>(shape.rank()));
    for (int dim = 0; dim < shape.rank(); ++dim) extents.push_back(shape[dim]);
    return extents;
}

Shape shape_of(const std::vector<std::int64_t>& extents) {
    switch (extents.size()) {
        case 0:
            return Shape{};
        case 1:
            return Shape{extents[0]};
        case 2:
            return Shape{extents[0], extents[1]};
        case 3:
            return Shape{extents[0], extents[1], extents[2]};
        case 4:
            return Shape{extents[0], extents[1], extents[2], extents[3]};
        default:
            fail(Exit::Internal, "shape_of: more than four dimensions");
    }
}

ManifestSlice manifest_slice(const Box& box, Range flat) {
    return {0, 0, extents_of(box.offset), extents_of(box.extent), flat.begin, flat.end};
}

std::string offer_text(const Snapshot& snapshot, const std::vector<const NamedSlice*>& slices) {
    json offered = json::array();
    for (const NamedSlice* slice : slices) {
        offered.push_back({slice->name, safetensors_dtype(slice->view.dtype), extents_of(slice->global),
                           extents_of(slice->box.offset), extents_of(slice->box.extent), slice->flat.begin,
                           slice->flat.end});
    }
    std::string scalars;  // bit patterns, so that NaN equals NaN
    for (const auto& [name, value] : snapshot.scalars) {
        scalars += name + "=" + std::to_string(std::bit_cast<std::uint64_t>(value)) + ";";
    }
    return message_text({{"step", snapshot.step},
                         {"counters", snapshot.counters},
                         {"scalars", scalars},
                         {"slices", std::move(offered)}});
}

std::string order_text(const SaveOrder& order) {
    json chosen = json::array();
    for (const std::vector<bool>& rank : order.chosen) {
        std::string bits;
        for (const bool bit : rank) bits += bit ? '1' : '0';
        chosen.push_back(bits);
    }
    return message_text({{"directory", order.directory}, {"chosen", std::move(chosen)}});
}

SaveOrder parse_order(const std::string& text) {
    const json value = json::parse(text);
    SaveOrder order{value.at("directory").get<std::string>(), {}};
    for (const json& bits : value.at("chosen")) {
        std::vector<bool>& rank = order.chosen.emplace_back();
        for (const char bit : bits.get_ref<const std::string&>()) rank.push_back(bit == '1');
    }
    return order;
}

std::string receipt_text(const SaveReceipt& receipt) {
    const ManifestFile& file = receipt.payload.file;
    return message_text({{"name", file.name},
                         {"bytes", file.bytes},
                         {"crcs", file.chunk_crcs},
                         {"offsets", receipt.payload.offsets},
                         {"hashes", receipt.hashes}});
}

SaveReceipt parse_receipt(const std::string& text) {
    const json value = json::parse(text);
    SaveReceipt receipt;
    receipt.payload.file = {value.at("name").get<std::string>(), value.at("bytes").get<std::uint64_t>(),
                            value.at("crcs").get<std::vector<std::uint32_t>>()};
    receipt.payload.offsets = value.at("offsets").get<std::vector<std::uint64_t>>();
    receipt.hashes = value.at("hashes").get<std::vector<std::uint64_t>>();
    return receipt;
}

std::string report_text(const SaveReport& report) {
    return message_text({{"directory", report.directory},
                         {"bytes", report.bytes},
                         {"hash", report.state_hash},
                         {"removed", report.removed},
                         {"warnings", report.warnings}});
}

SaveReport parse_report(const std::string& text) {
    const json value = json::parse(text);
    SaveReport report;
    report.directory = value.at("directory").get<std::string>();
    report.bytes = value.at("bytes").get<std::uint64_t>();
    report.state_hash = value.at("hash").get<std::uint64_t>();
    report.removed = value.at("removed").get<std::vector<std::string>>();
    report.warnings = value.at("warnings").get<std::vector<std::string>>();
    return report;
}

std::string answer_text(const LoadAnswer& answer) {
    json slices = json::array();
    for (const LoadedSlice& slice : answer.slices) {
        slices.push_back({slice.name, extents_of(slice.global), extents_of(slice.box.offset),
                          extents_of(slice.box.extent), slice.flat.begin, slice.flat.end, slice.hash});
    }
    json passed_over = json::array();
    for (const BadReplica& bad : answer.passed_over) passed_over.push_back({bad.path, bad.problem});
    json lacking = json::array();
    for (const auto& [file, problem] : answer.lacking) lacking.push_back({file, problem});
    return message_text({{"slices", std::move(slices)},
                         {"passed_over", std::move(passed_over)},
                         {"lacking", std::move(lacking)}});
}

LoadAnswer parse_answer(const std::string& text) {
    const json message = json::parse(text);
    LoadAnswer answer;
    for (const json& value : message.at("slices")) {
        answer.slices.push_back({value[0].get<std::string>(),
                                 shape_of(value[1].get<std::vector<std::int64_t>>()),
                                 {shape_of(value[2].get<std::vector<std::int64_t>>()),
                                  shape_of(value[3].get<std::vector<std::int64_t>>())},
                                 {value[4].get<std::int64_t>(), value[5].get<std::int64_t>()},
                                 value[6].get<std::uint64_t>()});
    }
    for (const json& bad : message.at("passed_over"))
        answer.passed_over.push_back({bad[0].get<std::string>(), bad[1].get<std::string>()});
    for (const json& lack : message.at("lacking"))
        answer.lacking.emplace(lack[0].get<std::size_t>(), lack[1].get<std::string>());
    return answer;
}

std::string load_order_text(const LoadOrder& order) {
    return json(order.places).dump() + "\n" + order.manifest;  // MANIFEST to the byte
}

LoadOrder parse_load_order(const std::string& text) {
    const std::size_t end = text.find('\n');
    return {json::parse(text.substr(0, end)).get<std::vector<std::size_t>>(), text.substr(end + 1)};
}

std::string transfers_text(const std::vector<Transfer>& transfers) {
    json list = json::array();
    for (const Transfer& transfer : transfers) list.push_back({transfer.file, transfer.from, transfer.to});
    return message_text(list);
}

std::vector<Transfer> parse_transfers(const std::string& text) {
    std::vector<Transfer> transfers;
    for (const json& value : json::parse(text))
        transfers.push_back({value[0].get<std::size_t>(), value[1].get<int>(), value[2].get<int>()});
    return transfers;
}

}  // namespace trainctl
