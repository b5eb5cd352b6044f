// SAX rather than a document: headers may be 100 MB, and duplicate names must be seen.
#include "rundir/safetensors_sax.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

using nlohmann::json;

constexpr std::size_t max_name_bytes = 512;
constexpr std::size_t max_dimensions = 32;

class HeaderHandler final : public nlohmann::json_sax<json> {
  public:
    explicit HeaderHandler(const std::string& where) : where_(where) {}
    SafetensorsHeader take() { return std::move(header_); }

    bool start_object(std::size_t /*elements*/) override {
        switch (state_) {
            case State::Start:
                state_ = State::Top;
                return true;
            case State::TopValue:
                state_ = in_metadata_ ? State::Metadata : State::Tensor;
                return true;
            default:
                refuse("an object where none belongs");
        }
    }
    bool key(string_t& name) override {
        switch (state_) {
            case State::Top:
                return top_key(name);
            case State::Metadata:
                if (header_.metadata.count(name) != 0) refuse(fmt::format("metadata key \"{}\" twice", name));
                key_ = name;
                state_ = State::MetadataValue;
                return true;
            case State::Tensor:
                return tensor_key(name);
            default:
                refuse("a key where none belongs");
        }
    }
    bool string(string_t& value) override {
        if (state_ == State::MetadataValue) {
            header_.metadata[key_] = value;
            state_ = State::Metadata;
            return true;
        }
        if (state_ == State::DType) {
            header_.tensors.back().dtype = value;
            state_ = State::Tensor;
            return true;
        }
        refuse("a string where none belongs");
    }
    bool start_array(std::size_t /*elements*/) override {
        if (state_ == State::Shape) {
            state_ = State::ShapeValues;
            return true;
        }
        if (state_ == State::Offsets) {
            state_ = State::OffsetValues;
            return true;
        }
        refuse("an array where none belongs");
    }
    bool number_unsigned(number_unsigned_t value) override {
        if (state_ == State::ShapeValues) {
            std::vector<std::int64_t>& shape = header_.tensors.back().shape;
            if (value > std::uint64_t{INT64_MAX} || shape.size() == max_dimensions)
                refuse("an impossible shape");
            shape.push_back(static_cast<std::int64_t>(value));
            return true;
        }
        if (state_ == State::OffsetValues && offsets_ < 2) {
            (offsets_ == 0 ? header_.tensors.back().begin : header_.tensors.back().end) = value;
            ++offsets_;
            return true;
        }
        refuse("a number where none belongs");
    }
    bool end_array() override {
        if (state_ == State::OffsetValues && offsets_ != 2) refuse("data_offsets without two numbers");
        state_ = State::Tensor;
        return true;
    }
    bool end_object() override {
        switch (state_) {
            case State::Tensor:
                if (!has_dtype_ || !has_shape_ || !has_offsets_) {
                    refuse(fmt::format("tensor \"{}\" without {}", header_.tensors.back().name,
                                       !has_dtype_ ? "dtype" : (!has_shape_ ? "shape" : "data_offsets")));
                }
                state_ = State::Top;
                return true;
            case State::Metadata:
                state_ = State::Top;
                return true;
            default:
                state_ = State::End;
                return true;
        }
    }
    bool null() override { refuse("null"); }
    bool boolean(bool /*value*/) override { refuse("true or false"); }
    bool number_integer(number_integer_t value) override {
        refuse(fmt::format("the negative number {}", value));
    }
    bool number_float(number_float_t /*value*/, const string_t& text) override {
        refuse(fmt::format("the number {}, which is not whole", text.substr(0, 40)));
    }
    bool binary(binary_t& /*value*/) override { refuse("binary data"); }
    bool parse_error(std::size_t position, const std::string& /*token*/,
                     const json::exception& error) override {
        fail(Exit::BadInput,
             fmt::format("{}: the header is not valid JSON at byte {} ({})", where_, position, error.what()));
    }

  private:
    enum class State {
        Start,
        Top,
        TopValue,
        Metadata,
        MetadataValue,
        Tensor,
        DType,
        Shape,
        ShapeValues,
        Offsets,
        OffsetValues,
        End
    };

    [[noreturn]] void refuse(const std::string& found) const {
        fail(Exit::BadInput,
             fmt::format("{}: the safetensors header has {}{}", where_, found,
                         header_.tensors.empty() || in_metadata_
                             ? std::string()
                             : fmt::format(" (at tensor \"{}\")", header_.tensors.back().name)));
    }
    bool top_key(const std::string& name) {
        in_metadata_ = name == "__metadata__";
        if (name.size() > max_name_bytes) refuse(fmt::format("a name of {} bytes", name.size()));
        if (!names_.insert(name).second) refuse(fmt::format("the name \"{}\" twice", name));
        if (!in_metadata_) {
            header_.tensors.emplace_back().name = name;
            has_dtype_ = has_shape_ = has_offsets_ = false;
            offsets_ = 0;
        }
        state_ = State::TopValue;
        return true;
    }
    bool tensor_key(const std::string& name) {
        const auto once = [&](bool& seen, State next) {
            if (seen) refuse(fmt::format("the field {} twice", name));
            seen = true;
            state_ = next;
            return true;
        };
        if (name == "dtype") return once(has_dtype_, State::DType);
        if (name == "shape") return once(has_shape_, State::Shape);
        if (name == "data_offsets") return once(has_offsets_, State::Offsets);
        refuse(fmt::format("the unknown field \"{}\"", name.substr(0, 80)));
    }

    const std::string& where_;
    SafetensorsHeader header_;
    State state_ = State::Start;
    std::set<std::string> names_;
    std::string key_;
    bool in_metadata_ = false;
    bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
    int offsets_ = 0;
};

}  // namespace

SafetensorsHeader parse_safetensors_json(std::string_view text, const std::string& where) {
    HeaderHandler handler(where);
    json::sax_parse(text.begin(), text.end(), &handler);
    return handler.take();
}

}  // namespace trainctl
