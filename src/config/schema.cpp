// JSON Schema of the job file. It describes what the loader accepts one key at a time; what must hold between
// keys is only in the loader.
#include "config/json_value.h"
#include "trainctl/config/reference.h"
#include "trainctl/config/registry.h"

namespace trainctl {

namespace {

JsonDoc list_of(const JsonDoc& items) { return {{"type", "array"}, {"items", items}}; }

JsonDoc source_schema() {
    const JsonDoc text = {{"type", "string"}, {"minLength", 1}};
    const JsonDoc table = {
        {"type", "object"},
        {"properties", {{"path", text}, {"weight", {{"type", "number"}, {"exclusiveMinimum", 0}}}}},
        {"required", JsonDoc::array({"path"})},
        {"additionalProperties", false}};
    return {{"anyOf", JsonDoc::array({text, table})}};
}

void add_bounds(const Key& key, JsonDoc& schema) {
    const bool open_low = key.bounds.ends == Bounds::Ends::OpenLow || key.bounds.ends == Bounds::Ends::Open;
    const bool open_high = key.bounds.ends == Bounds::Ends::OpenHigh || key.bounds.ends == Bounds::Ends::Open;
    const auto number = [&](double value) {
        return key.kind == Kind::Integer ? JsonDoc(static_cast<std::int64_t>(value)) : JsonDoc(value);
    };
    if (key.bounds.low != Bounds{}.low)
        schema[open_low ? "exclusiveMinimum" : "minimum"] = number(key.bounds.low);
    const double high = key.bounds.high;
    if (high != Bounds{}.high) schema[open_high ? "exclusiveMaximum" : "maximum"] = number(high);
}

JsonDoc type_schema(const Key& key) {
    switch (key.kind) {
        case Kind::Boolean:
            return {{"type", "boolean"}};
        case Kind::Integer:
        case Kind::Number: {
            JsonDoc schema = {{"type", key.kind == Kind::Integer ? "integer" : "number"}};
            add_bounds(key, schema);
            return schema;
        }
        case Kind::Text:
            return {{"type", "string"}};
        case Kind::Choice: {
            JsonDoc words = JsonDoc::array();
            for (const Choice& choice : key.choices)
                if (choice.availability == Availability::Built) words.push_back(choice.text);
            return {{"enum", words}};
        }
        case Kind::Duration: {
            JsonDoc seconds = {{"type", "number"}};
            add_bounds(key, seconds);
            return {{"anyOf", JsonDoc::array({JsonDoc{{"type", "string"}, {"pattern", "^([0-9.]+[smhd]?)+$"}},
                                              seconds})}};
        }
        case Kind::Sources:
            return {{"anyOf", JsonDoc::array({source_schema(), list_of(source_schema())})}};
        case Kind::TextList: {
            const JsonDoc text = {{"type", "string"}};
            return {{"anyOf", JsonDoc::array({text, list_of(text)})}};
        }
        case Kind::Table:
            return {{"type", "object"}};
        case Kind::TableList:
            return list_of({{"type", "object"}});
    }
    return JsonDoc::object();
}

JsonDoc key_schema(const Key& key) {
    JsonDoc schema = type_schema(key);
    if (key.absent == Absent::Auto)
        schema = {{"anyOf", JsonDoc::array({JsonDoc{{"const", "auto"}}, schema})}};
    std::string description = key.help;
    if (!key.unit.empty()) description += " Unit: " + key.unit + ".";
    if (key.availability == Availability::NotBuilt) {
        // Only the default is accepted; an absent default means that nothing is.
        const bool empty = std::holds_alternative<std::monostate>(key.fallback);
        schema =
            empty ? JsonDoc{{"not", JsonDoc::object()}} : JsonDoc{{"const", json_value(key, key.fallback)}};
        description = "Not in this build. " + description;
    }
    schema["description"] = description;
    const Value absent;
    if (key.fallback != absent) schema["default"] = json_value(key, key.fallback);
    return schema;
}

}  // namespace

std::string config_schema_json() {
    const Registry registry;
    JsonDoc root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                    {"title", "trainctl job"},
                    {"type", "object"},
                    {"properties", JsonDoc::object()},
                    {"required", JsonDoc::array({"job", "data"})},
                    {"additionalProperties", false}};
    for (const Key& key : registry.keys()) {
        JsonDoc* at = &root;
        std::string rest = key.section() + ".";
        for (std::size_t dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
            at = &(*at)["properties"][rest.substr(0, dot)];
            (*at)["type"] = "object";
            (*at)["additionalProperties"] = false;
            rest = rest.substr(dot + 1);
        }
        (*at)["properties"][key.leaf()] = key_schema(key);
        if (key.absent == Absent::Required) (*at)["required"].push_back(key.leaf());
    }
    return json_text(root);
}

}  // namespace trainctl
