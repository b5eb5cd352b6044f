// Named checks with their findings: what `data verify` answers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainctl/data/commands.h"

namespace trainctl::data_detail {

class CheckList {
  public:
    enum class Verdict { Passed, Failed, NotChecked };

    void add(Verdict verdict, const std::string& name, const std::string& detail);
    void expect(bool holds, const std::string& name, const std::string& detail) {
        add(holds ? Verdict::Passed : Verdict::Failed, name, detail);
    }
    // Runs `check`, which returns the detail of success; a BadInput error becomes a failed check, others pass
    // through. True if it passed.
    bool attempt(const std::string& name, const std::function<std::string()>& check);
    // Takes over the checks of another answer, their names prefixed.
    void append(const std::string& prefix, const CheckList& other);

    [[nodiscard]] bool all_passed() const;
    // Exit::BadInput if any check failed.
    [[nodiscard]] CommandResult result(OutputFormat format) const;

  private:
    struct Check {
        Verdict verdict;
        std::string name, detail;
    };
    std::vector<Check> checks_;
};

CheckList check_token_file(FileSystem& files, const VerifyArgs& args);

}  // namespace trainctl::data_detail
