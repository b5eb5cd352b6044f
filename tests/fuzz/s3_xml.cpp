// Fuzz target: an object store's answer, whatever it holds, is refused with Exit::BadInput, or means the same
// when written again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "object_storage/s3_messages.h"
#include "object_storage/xml.h"
#include "trainctl/base/error.h"

namespace {

template <class Check>
void must_refuse_or_pass(Check check) {
    try {
        check();
    } catch (const trainctl::Error& error) {
        if (error.code() != trainctl::Exit::BadInput) std::abort();
    }
}

std::string written(const trainctl::XmlElement& element) {
    std::string text = "<" + element.name + ">" + trainctl::xml_escaped(element.text);
    for (const trainctl::XmlElement& child : element.children) text += written(child);
    return text + "</" + element.name + ">";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    must_refuse_or_pass([&] {
        const std::string once = written(trainctl::parse_xml(text));
        trainctl::XmlLimits roomy;
        roomy.bytes = once.size();  // entities take more room than what they stand for
        if (written(trainctl::parse_xml(once, roomy)) != once) std::abort();
    });
    must_refuse_or_pass([&] {
        const trainctl::ListPage page = trainctl::parse_list(text);
        if (page.names.size() > size) std::abort();
    });
    must_refuse_or_pass([&] {
        if (trainctl::parse_upload_id(text).empty()) std::abort();
    });
    must_refuse_or_pass([&] { trainctl::require_completed(text); });
    must_refuse_or_pass([&] { trainctl::require_copied(text); });
    if (const auto error = trainctl::parse_s3_error(text); error && error->message.size() > 300) std::abort();
    return 0;
}
