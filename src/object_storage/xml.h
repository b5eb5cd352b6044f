// A strict reader for the little XML that object stores answer with: elements, attributes (read and dropped),
// text with the five named and the numeric entities. No document types, comments, CDATA or processing
// instructions besides the declaration: whoever sends those is not the store that we speak to.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct XmlElement {
    std::string name;  // as written, a namespace prefix included
    std::string text;  // of this element alone, entities resolved
    std::vector<XmlElement> children;

    // Text of the first child of that name; empty if there is none.
    [[nodiscard]] std::string_view text_of(std::string_view child) const;
    [[nodiscard]] bool has(std::string_view child) const;
};

struct XmlLimits {
    std::size_t bytes = std::size_t{8} << 20U;
    int depth = 12;
    std::size_t elements = 50'000;
};

// Exit::BadInput with the byte at which it is wrong.
XmlElement parse_xml(std::string_view text, const XmlLimits& limits = {});

// Text as it stands between two tags.
std::string xml_escaped(std::string_view text);

}  // namespace trainctl
