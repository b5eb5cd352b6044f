#include "data/check_list.h"

#include <fmt/core.h>

#include <algorithm>

#include "trainctl/base/error.h"
#include "trainctl/base/text.h"

namespace trainctl::data_detail {
namespace {

std::string_view verdict_name(CheckList::Verdict verdict) {
    switch (verdict) {
        case CheckList::Verdict::Passed:
            return "ok";
        case CheckList::Verdict::Failed:
            return "FAILED";
        case CheckList::Verdict::NotChecked:
            return "not checked";
    }
    return "?";
}

}  // namespace

void CheckList::add(Verdict verdict, const std::string& name, const std::string& detail) {
    checks_.push_back({verdict, name, detail});
}

bool CheckList::attempt(const std::string& name, const std::function<std::string()>& check) {
    try {
        add(Verdict::Passed, name, check());
        return true;
    } catch (const Error& error) {
        if (error.code() != Exit::BadInput) throw;
        add(Verdict::Failed, name, error.what());
        return false;
    }
}

void CheckList::append(const std::string& prefix, const CheckList& other) {
    for (const Check& check : other.checks_)
        checks_.push_back({check.verdict, prefix + check.name, check.detail});
}

bool CheckList::all_passed() const {
    return std::none_of(checks_.begin(), checks_.end(),
                        [](const Check& c) { return c.verdict == Verdict::Failed; });
}

CommandResult CheckList::result(OutputFormat format) const {
    std::string text;
    std::string list;
    for (const Check& check : checks_) {
        text += fmt::format("{:<11}  {}: {}\n", verdict_name(check.verdict), check.name, check.detail);
        list += fmt::format(R"({}{{"check":{},"verdict":{},"detail":{}}})", list.empty() ? "" : ",",
                            json_quote(check.name), json_quote(verdict_name(check.verdict)),
                            json_quote(check.detail));
    }
    text += all_passed() ? "all checks passed\n" : "some checks FAILED\n";
    const std::string json = fmt::format(R"({{"ok":{},"checks":[{}]}})", all_passed(), list);
    if (all_passed()) return {Exit::Ok, in_format(format, text, json), {}};
    std::string failed;
    for (const Check& check : checks_)
        if (check.verdict == Verdict::Failed) failed += (failed.empty() ? "" : ", ") + check.name;
    return {
        Exit::BadInput, in_format(format, text, json),
        fmt::format("error: these checks failed: {}. Restore the files or prepare the data again\n", failed)};
}

}  // namespace trainctl::data_detail
