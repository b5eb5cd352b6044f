#include "trainctl/rundir/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "rundir/strict_json.h"
#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/base/text.h"
#include "trainctl/rundir/durable_file.h"

namespace trainctl {
namespace {

constexpr std::array event_names{std::string_view("begin"),    std::string_view("commit"),
                                 std::string_view("failed"),   std::string_view("delete"),
                                 std::string_view("resume"),   std::string_view("verify"),
                                 std::string_view("suspect"),  std::string_view("healthy"),
                                 std::string_view("rollback"), std::string_view("note")};
constexpr std::uint64_t max_segment_bytes = 1U << 30U;

std::string line_of(const JournalRecord& record) {
    const std::string json = fmt::format(
        R"({{"event": "{}", "step": {}, "directory": {}, "text": {}, "attempt": {}, "sequence": {}, "time": {}}})",
        journal_event_name(record.event), record.step, json_quote(record.directory), json_quote(record.text),
        record.attempt, record.sequence, json_quote(record.time));
    return fmt::format("{:08x} {}\n", crc32c(json), json);
}

// Throws Exit::BadInput.
JournalRecord parse_line(std::string_view line, const std::string& where) {
    const auto crc = line.size() > 9 && line[8] == ' ' ? parse_hex(line.substr(0, 8), 8) : std::nullopt;
    if (!crc) fail(Exit::BadInput, where + ": not a journal line");
    const std::string_view json = line.substr(9);
    if (*crc != crc32c(json)) {
        fail(Exit::BadInput,
             fmt::format("{}: checksum {:08x} expected, {:08x} found", where, *crc, crc32c(json)));
    }
    const nlohmann::json document = parse_strict_json(json, where);
    const JsonObject object(document, where);
    const std::string event = object.text("event");
    const auto* const found = std::find(event_names.begin(), event_names.end(), event);
    if (found == event_names.end()) object.refuse("event", "a known event");
    return {static_cast<JournalEvent>(found - event_names.begin()),
            object.integer("step", -1, INT64_MAX),
            object.text("directory"),
            object.text("text"),
            static_cast<int>(object.integer("attempt", 1, 1 << 30)),
            object.integer("sequence", 0, INT64_MAX),
            object.text("time")};
}

// "a0007.log" or "a0007-2.log" -> 7
std::optional<int> segment_attempt(std::string_view name) {
    constexpr std::string_view suffix = ".log";
    if (name.size() <= suffix.size() || name.substr(name.size() - suffix.size()) != suffix)
        return std::nullopt;
    return parse_attempt_name(name.substr(0, std::min(name.find('-'), name.size() - suffix.size())));
}

}  // namespace

std::string_view journal_event_name(JournalEvent event) {
    return event_names.at(static_cast<std::size_t>(event));
}

bool Journal::shows_progress() const {
    return !problems.empty() || std::any_of(records.begin(), records.end(), [](const JournalRecord& record) {
        return record.event == JournalEvent::Commit || record.event == JournalEvent::Resume;
    });
}

JournalSegment parse_journal_segment(std::string_view text, const std::string& where) {
    JournalSegment segment;
    for (int number = 1; !text.empty(); ++number) {
        const std::size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        const bool last = end == std::string_view::npos || end + 1 == text.size();
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        try {
            // Without its newline a line was not finished, even if the rest happens to be there.
            if (end == std::string_view::npos) fail(Exit::BadInput, where + ": unfinished line");
            segment.records.push_back(parse_line(line, fmt::format("{} line {}", where, number)));
        } catch (const Error& error) {
            if (last) {
                segment.torn = true;
            } else {
                segment.problems.emplace_back(error.what());
            }
        }
    }
    return segment;
}

Journal read_journal(FileSystem& files, const RunLayout& layout) {
    Journal journal;
    if (!files.status(layout.journal())) return journal;
    std::set<std::pair<int, std::int64_t>> seen;  // a rewritten segment repeats its lines
    for (const std::string& name : files.list(layout.journal())) {
        const auto attempt = segment_attempt(name);
        if (!attempt) continue;
        const std::string path = join_path(layout.journal(), name);
        JournalSegment segment;
        try {
            segment = parse_journal_segment(read_text(files, path, max_segment_bytes), path);
        } catch (const Error& error) {
            journal.problems.emplace_back(error.what());
            continue;
        }
        for (JournalRecord& record : segment.records) {
            if (record.attempt != *attempt) {
                journal.problems.push_back(fmt::format("{}: has a line of attempt {}", path, record.attempt));
            } else if (seen.emplace(record.attempt, record.sequence).second) {
                journal.records.push_back(std::move(record));
            }
        }
        for (std::string& problem : segment.problems) journal.problems.push_back(std::move(problem));
    }
    std::sort(journal.records.begin(), journal.records.end(),
              [](const JournalRecord& a, const JournalRecord& b) {
                  return std::pair(a.attempt, a.sequence) < std::pair(b.attempt, b.sequence);
              });
    return journal;
}

JournalWriter::JournalWriter(FileSystem& files, Clock& clock, const RunLayout& layout, int attempt)
    : files_(files), clock_(clock), directory_(layout.journal()), attempt_(attempt) {
    open_segment();
}

void JournalWriter::open_segment() {
    const std::string name = segment_ == 0 ? attempt_name(attempt_) + ".log"
                                           : fmt::format("{}-{}.log", attempt_name(attempt_), segment_);
    ++segment_;  // a name is used once, also when opening fails half-way
    path_ = join_path(directory_, name);
    make_durable_directories(files_, directory_);
    file_ = files_.open(path_, Open::CreateNew);
    if (!lines_.empty()) file_->write(std::as_bytes(std::span(std::as_const(lines_))));
    file_->sync();
    files_.sync_directory(directory_);
}

// Written to, but no longer under its name, a file would take every line and keep none.
bool JournalWriter::segment_in_place() const {
    const auto found = files_.status(path_);
    return found && found->size == lines_.size();
}

void JournalWriter::append(JournalRecord record) {
    record.attempt = attempt_;
    record.sequence = sequence_++;
    record.time = utc_timestamp(clock_.unix_s());
    const std::string line = line_of(record);
    if (file_ != nullptr && !segment_in_place()) file_.reset();
    lines_ += line;
    for (int attempt = 0;; ++attempt) {
        try {
            if (file_ != nullptr) {
                file_->write(std::as_bytes(std::span(line)));
                file_->sync();
            } else {
                open_segment();  // writes all lines, the new one included
            }
            return;
        } catch (const Error&) {
            file_.reset();
            if (attempt + 1 == durable_tries) throw;
        }
    }
}

}  // namespace trainctl
