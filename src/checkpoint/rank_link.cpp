#include "trainctl/checkpoint/rank_link.h"

#include <fmt/format.h>

#include <new>
#include <string_view>
#include <utility>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

// First byte of a message: '+' result follows, '-' one digit of the exit code and the text of an error.
std::string success(const std::string& result) { return "+" + result; }
std::string failure(Exit code, std::string_view text) {
    return fmt::format("-{}{}", static_cast<int>(code), text);
}

std::string guarded(const std::function<std::string()>& work) {
    try {
        return success(work());
    } catch (const Error& error) {
        return failure(error.code(), error.what());
    } catch (const std::bad_alloc&) {
        return failure(Exit::Resource, "out of memory");
    } catch (const std::exception& error) {
        return failure(Exit::Internal, error.what());
    }
}

// The one error that stands for all; empty if every rank succeeded.
std::string common_failure(const std::vector<std::string>& answers) {
    std::size_t failed = 0;
    std::size_t chosen = answers.size();
    const std::string fenced = failure(Exit::Fenced, "");
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
        if (answers[rank].empty() || answers[rank].front() != '-') continue;
        ++failed;
        const bool is_fenced = answers[rank].compare(0, fenced.size(), fenced) == 0;
        const bool have_fenced =
            chosen < answers.size() && answers[chosen].compare(0, fenced.size(), fenced) == 0;
        if (chosen == answers.size() || (is_fenced && !have_fenced)) chosen = rank;
    }
    if (failed == 0) return {};
    std::string text = answers[chosen];
    if (answers.size() > 1) text.insert(2, fmt::format("rank {}: ", chosen));
    if (failed > 1) text += fmt::format(" ({} other ranks failed as well)", failed - 1);
    return text;
}

}  // namespace

std::string agree(RankLink& link, const std::function<std::string()>& work,
                  const std::function<std::string(const std::vector<std::string>&)>& decide) {
    std::vector<std::string> answers = link.gather(guarded(work));
    std::string decision;
    if (link.rank() == 0) {
        decision = common_failure(answers);
        if (decision.empty()) {
            for (std::string& answer : answers) answer.erase(0, 1);
            decision = guarded([&] { return decide(answers); });
        }
    }
    decision = link.broadcast(decision);
    invariant(decision.size() >= 1 && (decision.front() == '+' || decision.size() >= 2),
              "agree: malformed decision");
    if (decision.front() == '+') return decision.substr(1);
    fail(static_cast<Exit>(decision[1] - '0'), decision.substr(2));
}

}  // namespace trainctl
