#include "trainctl/checkpoint/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

// A message is '+' and a result, or '-', one digit of the exit code, the host (up to a newline) and the text
// of an error.
std::string success(const std::string& result) { return "+" + result; }
std::string failure(Exit code, const std::string& host, std::string_view text) {
    return fmt::format("-{}{}\n{}", static_cast<int>(code), host, text);
}

struct Failure {
    std::size_t rank = 0;
    char code = '0';
    std::string_view host;
    std::string_view text;
};

Failure parse_failure(std::size_t rank, std::string_view message) {
    const std::size_t end = message.find('\n');
    invariant(message.size() >= 3 && end != std::string_view::npos, "agree: malformed failure");
    return {rank, message[1], message.substr(2, end - 2), message.substr(end + 1)};
}

std::string guarded(const std::string& host, const std::function<std::string()>& work) {
    try {
        return success(work());
    } catch (const Error& error) {
        return failure(error.code(), host, error.what());
    } catch (const std::bad_alloc&) {
        return failure(Exit::Resource, host, "out of memory");
    } catch (const std::exception& error) {
        return failure(Exit::Internal, host, error.what());
    }
}

// The one error that stands for all; empty if every rank succeeded.
std::string common_failure(const std::vector<std::string>& answers) {
    std::vector<Failure> failures;
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
        if (!answers[rank].empty() && answers[rank].front() == '-')
            failures.push_back(parse_failure(rank, answers[rank]));
    }
    if (failures.empty()) return {};
    constexpr char fenced = static_cast<char>('0' + static_cast<int>(Exit::Fenced));
    const auto is_fenced = [](const Failure& found) { return found.code == fenced; };
    const auto first_fenced = std::find_if(failures.begin(), failures.end(), is_fenced);
    const Failure& chosen = first_fenced != failures.end() ? *first_fenced : failures.front();
    // What every rank found alike is nobody's in particular.
    const bool alike = failures.size() == answers.size() &&
                       std::all_of(failures.begin(), failures.end(), [&](const Failure& found) {
                           return found.code == chosen.code && found.text == chosen.text;
                       });
    std::string text(chosen.text);
    if (!alike) {
        text =
            fmt::format("[rank {}{}{}] {}", chosen.rank, chosen.host.empty() ? "" : " ", chosen.host, text);
        if (failures.size() > 1) text += fmt::format(" ({} other ranks failed as well)", failures.size() - 1);
    }
    return fmt::format("-{}\n{}", chosen.code, text);
}

}  // namespace

std::string agree(RankLink& link, const std::function<std::string()>& work,
                  const std::function<std::string(const std::vector<std::string>&)>& decide) {
    std::vector<std::string> answers = link.gather(guarded(link.host(), work));
    std::string decision;
    if (link.rank() == 0) {
        decision = common_failure(answers);
        if (decision.empty()) {
            for (std::string& answer : answers) answer.erase(0, 1);
            decision = guarded("", [&] { return decide(answers); });
        }
    }
    decision = link.broadcast(decision);
    invariant(!decision.empty(), "agree: malformed decision");
    if (decision.front() == '+') return decision.substr(1);
    const Failure failed = parse_failure(0, decision);
    throw Error(static_cast<Exit>(failed.code - '0'), std::string(failed.text), Where::here(), Scope::Shared);
}

void agree(RankLink& link, const std::function<void()>& work) {
    agree(
        link,
        [&] {
            work();
            return std::string();
        },
        [](const std::vector<std::string>&) { return std::string(); });
}

void at_rank_0(RankLink& link, const std::function<void()>& work) {
    agree(link, [&] {
        if (link.rank() == 0) work();
    });
}

}  // namespace trainctl
